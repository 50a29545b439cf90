"""`eden forget KIND ID`, `eden forget --missing`: forget something and what derives only from it."""

import asyncio
from typing import Annotated, Any, Literal

import typer

from eden_memory.cli.sessions import named_session
from eden_memory.cli.terminal import confirm
from eden_memory.errors import Invalid, NotFound
from eden_memory.mongo.bson_ids import decode_id
from eden_memory.replay.installation import Installation, installation
from eden_memory.replay.namespaces.namespace_names import goes_on
from eden_memory.replay.reform.reform_store import neglected
from eden_memory.schemas.documents import Fact, InboxForget, Message, Namespace, Reflection, StoredBlob
from eden_memory.settings import Settings
from eden_memory.source.flagged_message_store import missing_messages
from eden_memory.source.inbox_store import ask, message_of, user_of

Kind = Literal["message", "session", "user", "fact", "reflection", "blob"]
STORED = {"fact": Fact.COLLECTION, "reflection": Reflection.COLLECTION, "blob": StoredBlob.COLLECTION}


def forget(
    kind: Annotated[Kind | None, typer.Argument(help="what it is")] = None,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="ID",
            help="as the application has it, or typed (s.TEXT, i.5); a blob's: SCOPE_KEY@VERSION",
        ),
    ] = None,
    by: Annotated[str | None, typer.Option("--by", help="who asks, noted in the record")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    missing: Annotated[
        bool,
        typer.Option(
            "--missing",
            help="list the messages whose document was missing after a lost position, and forget them",
        ),
    ] = False,
) -> None:
    """Forget a message, session, user or fact, and everything derived only from it; summaries are rebuilt.

    Examples:

    eden forget message 65f0…

    eden forget user ada --yes --by support

    eden forget --missing
    """
    settings = Settings()
    if missing:
        if kind is not None:
            raise Invalid("--missing takes no kind and no ID", "It lists what is missing, and asks.")
        _forget_missing(settings, by, yes=yes)
        return
    if kind is None or name is None:
        raise Invalid("name what to forget", "eden forget message|session|user|fact ID")
    if not yes:
        confirm(f"Forget the {kind} {name}? It cannot be undone.")
    _say_asked(asyncio.run(_forget(settings, kind, name, by)))


def _forget_missing(settings: Settings, by: str | None, *, yes: bool) -> None:
    found = asyncio.run(_missing(settings))
    for message in found[:SHOWN]:
        state = "formed" if message.formation_id else "waits for its window"
        typer.echo(f"{message.id}  session {message.session_id}  {message.time:%Y-%m-%d %H:%M:%S}  {state}")
    if len(found) > SHOWN:
        typer.echo(f"… and {len(found) - SHOWN} more")
    if not found:
        typer.echo("No message is missing.")
        return
    if not yes:
        question = f"Forget these {len(found)} messages, which the application does not have any more?"
        confirm(f"{question} It cannot be undone.")
    _say_asked(asyncio.run(_ask_all(settings, found, by)))


def _say_asked(left: list[Namespace]) -> None:
    typer.echo(
        f"Asked. A running system removes it from facts, reflections, blobs and contexts within moments; "
        f"what is in topics kept for a time ages out: {', '.join(AGES_OUT)}."
    )
    for namespace in left:
        typer.echo(f"{namespace.id} keeps what it holds of it until it goes on: {goes_on(namespace)}.")


SHOWN = 50
"""Missing messages that are listed one by one."""
AGES_OUT = (
    "memory.extractions and memory.candidates 7 days after they were consumed",
    "dead letters and memory.usage after 30 days",
    "texts of closed windows 7 days after their formation",
)


async def _forget(settings: Settings, kind: str, name: str, by: str | None) -> list[Namespace]:
    """Request the forgetting; return the namespaces that keep the memory for now."""
    async with installation(settings) as at:
        source, paths = at.source, settings.messages
        target: Any = name
        if kind == "session":
            target = await named_session(at, name)
        elif kind == "user":
            target = await user_of(source, paths.collection, paths.user_id, name)
        elif kind == "message":
            target = await message_of(source, paths.collection, name)
        else:
            await _demand_stored(at, kind, name)
        document = {"kind": "forget", "what": kind, "target": target, "asked_by": by}
        await ask(source[settings.names[InboxForget.COLLECTION]], document)
        return await neglected(at.database, settings.mongodb.prefix)


async def _missing(settings: Settings) -> list[Message]:
    async with installation(settings) as at:
        messages = at.source[settings.messages.collection]
        return await missing_messages(at.database, at.settings.names, messages)


async def _ask_all(settings: Settings, messages: list[Message], by: str | None) -> list[Namespace]:
    async with installation(settings) as at:
        inbox = at.source[settings.names[InboxForget.COLLECTION]]
        asked: dict[str, Any] = {"kind": "forget", "what": "message", "asked_by": by}
        await inbox.insert_many([{**asked, "target": decode_id(message.id)} for message in messages])
        return await neglected(at.database, settings.mongodb.prefix)


async def _demand_stored(at: Installation, kind: str, name: str) -> None:
    """Raise NotFound if there is none: otherwise a typing error would look like success."""
    if await at.database[at.settings.names[STORED[kind]]].find_one({"_id": name}, {"_id": 1}) is None:
        raise NotFound(
            f"there is no {kind} {name!r}", f"Or no more; `eden {kind}s` lists those that a user may see."
        )
