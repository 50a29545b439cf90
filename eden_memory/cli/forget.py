"""`eden forget message|session|user|fact ID`: what came from it alone leaves memory, for ever."""

import asyncio
from typing import Annotated, Any, Literal

import typer
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.api.errors import NotFound
from eden_memory.cli.replay.live import live_settings
from eden_memory.domain.replay.namespaces import goes_on
from eden_memory.local.servers import endpoints
from eden_memory.mongo.client import connect
from eden_memory.mongo.replay.neglected import neglected
from eden_memory.mongo.source.requests import ask, message_of, session_of, user_of
from eden_memory.settings import Settings
from schemas.documents import Fact, InboxForget, Namespace, Reflection, StoredBlob

Kind = Literal["message", "session", "user", "fact", "reflection", "blob"]
STORED = {"fact": Fact.COLLECTION, "reflection": Reflection.COLLECTION, "blob": StoredBlob.COLLECTION}


def forget(
    kind: Annotated[Kind, typer.Argument(help="what it is")],
    name: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="as the application has it, or typed (s.TEXT, i.5); a blob's: SCOPE_KEY@VERSION",
        ),
    ],
    by: Annotated[str | None, typer.Option("--by", help="who asks, noted in the record")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """Forget something by hand: what rests on it alone is removed, and blobs that absorbed it are made anew.

    Examples:

    eden forget message 65f0…

    eden forget user ada --yes --by support
    """
    if not yes:
        typer.confirm(f"Forget the {kind} {name}? It cannot be undone.", abort=True)
    settings = Settings()
    left = asyncio.run(_forget(settings, kind, name, by))
    typer.echo(
        f"Asked. A running system removes it from facts, reflections, blobs and contexts within moments; "
        f"what is in topics kept for a time ages out: {', '.join(AGES_OUT)}."
    )
    for one in left:
        typer.echo(f"{one.id} keeps what it holds of it until it goes on: {goes_on(one)}.")


AGES_OUT = (
    "memory.extractions and memory.candidates 7 days after they were consumed",
    "dead letters and memory.usage after 30 days",
    "texts of closed windows 7 days after their formation",
)


async def _forget(settings: Settings, kind: str, name: str, by: str | None) -> list[Namespace]:
    """The namespaces in which it stays for now are returned."""
    async with connect(settings.mongodb, endpoints(settings).mongodb) as client:
        source = client[settings.source_database]
        paths = settings.messages
        target: Any = name
        if kind == "session":
            target = await session_of(source, paths.collection, paths.session_id, name)
        elif kind == "user":
            target = await user_of(source, paths.collection, paths.user_id, name)
        elif kind == "message":
            target = await message_of(source, paths.collection, name)
        else:
            await _demand_stored(settings, client[settings.mongodb.database], kind, name)
        document = {"kind": "forget", "what": kind, "target": target, "asked_by": by}
        await ask(source[settings.names[InboxForget.COLLECTION]], document)
        return await neglected(client[settings.mongodb.database], settings.mongodb.prefix)


async def _demand_stored(
    settings: Settings, memory: AsyncDatabase[dict[str, Any]], kind: str, name: str
) -> None:
    """NotFound for what is ours and not there: a slip of the pen would be taken for done."""
    names = (await live_settings(settings, memory)).names
    if await memory[names[STORED[kind]]].find_one({"_id": name}, {"_id": 1}) is None:
        raise NotFound(
            f"there is no {kind} {name!r}", f"Or no more; `eden {kind}s` lists those that a user may see."
        )
