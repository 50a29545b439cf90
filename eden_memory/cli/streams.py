"""`eden stream list|show|set|off`: how an agent's scopes and shards are formed (`memory_streams`)."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, get_args

import typer
from pydantic import ValidationError
from pymongo.asynchronous.collection import AsyncCollection

from eden_memory.cli.tables import show_table
from eden_memory.directory.stream_store import FIELDS, label, streams_in
from eden_memory.errors import Invalid, NotFound
from eden_memory.mongo.application_ids import typed_id_of
from eden_memory.replay.installation import installation
from eden_memory.schemas.documents import Stream
from eden_memory.schemas.scopes import ScopeKind
from eden_memory.settings import Settings

Row = dict[str, Any]
app = typer.Typer(
    help="Configure an agent's scopes and shards: guidance, thresholds, limits, switches.",
    no_args_is_help=True,
)
Agent = Annotated[str, typer.Argument(help="the agent, as in the application or typed: s.TEXT, o.OBJECTID")]
Label = Annotated[
    str, typer.Argument(metavar="SCOPE", help="agent, group, user, session, or shard:NAME for a shard")
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output")]
NAMES = frozenset({"_id", "agent_id", "scope", "shard"})
"""The fields that identify a stream."""
SETTABLE = sorted(FIELDS - NAMES)
KINDS: tuple[str, ...] = get_args(ScopeKind)


@app.command("list")
def list_(
    agent: Annotated[str | None, typer.Option(help="only of this agent")] = None, as_json: AsJson = False
) -> None:
    """Every stream: its agent, its scope, whether it is active, and what it sets."""
    query = {} if agent is None else {"agent_id": typed_id_of(agent, "agent")}
    found = asyncio.run(_list(Settings(), query))
    if as_json:
        typer.echo(json.dumps([_shown(stream) for stream in found], indent=2))
        return
    if not found:
        typer.echo("no streams: every scope is formed by the settings, and there are no shards")
        return
    rows = (
        (stream.agent_id, label(stream), "yes" if stream.active else "no", ", ".join(_sets(stream)))
        for stream in found
    )
    show_table(("agent", "scope", "active", "sets"), rows, "", whole=("agent",))


def _sets(stream: Stream) -> list[str]:
    return [name for name in _shown(stream) if name not in NAMES | {"active"}]


@app.command()
def show(agent: Agent, scope: Label) -> None:
    """The document of a stream, as JSON. Exit code 3 if there is none."""
    typer.echo(json.dumps(_shown(asyncio.run(_show(Settings(), _named(agent, scope)))), indent=2))


@app.command("set")
def set_(
    agent: Agent,
    scope: Label,
    fields: Annotated[
        list[str], typer.Argument(metavar="FIELD=VALUE…", help=f"{', '.join(SETTABLE)}; FIELD= unsets it")
    ],
) -> None:
    """Set fields of a stream, or make it; windows that are requested from now on are formed so.

    Examples:

    eden stream set support user threshold=6 word_limit=250

    eden stream set support shard:pricing extraction_guidance="Prices and quotes, with dates."

    eden stream set support group active=true
    """
    stream = asyncio.run(_set(Settings(), _named(agent, scope), dict(map(_pair, fields))))
    typer.echo(f"{label(stream)} of {stream.agent_id}: {json.dumps(_shown(stream))}")


@app.command()
def off(agent: Agent, scope: Label) -> None:
    """Switch a scope or shard off: it is neither formed nor shown; what is stored of it stays.

    `eden stream set AGENT SCOPE active=true` switches it on again. A session's own memory is always formed.
    """
    if scope == "session":
        raise Invalid("a session's memory is always formed", "Streams switch off the other scopes.")
    stream = asyncio.run(_set(Settings(), _named(agent, scope), {"active": "false"}))
    typer.echo(f"{label(stream)} of {stream.agent_id} is off")


def _named(agent: str, scope: str) -> Row:
    """The fields that a stream is found by."""
    kind, _, shard = scope.partition(":")
    if kind not in KINDS or (kind == "shard") != bool(shard):
        raise Invalid(f"there is no scope {scope!r}", f"One of: {', '.join(KINDS[:-1])}, shard:NAME.")
    agent_id = typed_id_of(agent, "agent")
    name = f"{agent_id}/{kind}/{shard}" if shard else f"{agent_id}/{kind}"
    return {"_id": name, "agent_id": agent_id, "scope": kind} | ({"shard": shard} if shard else {})


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or name in NAMES:
        raise Invalid(f"{text!r} sets nothing", f"Give FIELD=VALUE; the fields are {', '.join(SETTABLE)}.")
    return name, value


async def _list(settings: Settings, query: Row) -> Sequence[Stream]:
    async with _streams(settings) as collection:
        rows = await collection.find(query, sort=[("agent_id", 1), ("_id", 1)]).to_list()
        return [stream for row in rows for stream in streams_in([row]).values()]


async def _show(settings: Settings, named: Row) -> Stream:
    async with _streams(settings) as collection:
        row = await _find(collection, named)
        if row is None:
            raise NotFound(f"there is no stream {named['_id']}", "`eden stream list` shows what there is.")
        return _checked(row)


async def _set(settings: Settings, named: Row, fields: dict[str, str]) -> Stream:
    async with _streams(settings) as collection:
        before = await _find(collection, named) or named
        changed = {**before, **fields}
        stream = _checked({name: value for name, value in changed.items() if value != ""})
        stored = stream.stored()
        given = {name: stored[name] for name, value in fields.items() if value != ""}
        unset = dict.fromkeys(fields.keys() - given.keys(), "")
        update = {"$set": given, "$unset": unset, "$setOnInsert": {**named, "_id": before["_id"]}}
        kept = {operator: part for operator, part in update.items() if part}
        await collection.update_one({"_id": before["_id"]}, kept, upsert=True)
        return stream


async def _find(collection: AsyncCollection[Row], named: Row) -> Row | None:
    """By what it is of: a document that people wrote may have any `_id`."""
    of = {name: named.get(name) for name in ("agent_id", "scope", "shard")}
    return await collection.find_one(of)


def _checked(row: Row) -> Stream:
    """Invalid, with the fields' names, where no stream is so."""
    try:
        stream = Stream.model_validate(row, strict=False)
        label(stream)
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, error_details['loc']))}: {error_details['msg']}"
            for error_details in error.errors()[:5]
        )
        raise Invalid(f"the stream is not valid: {wrong}", f"Its fields: {', '.join(SETTABLE)}.") from None
    if stream.scope == "session" and not stream.active:
        raise Invalid("active: a session's memory is always formed", "Streams switch off the other scopes.")
    if stream.sharing is not None and stream.scope not in ("agent", "shard"):
        raise Invalid("sharing: only an agent or a shard can set it", "Set it for agent, or for shard:NAME.")
    if stream.propagation is not None and stream.scope != "agent":
        raise Invalid("propagation: only an agent can set it", "Set it for agent.")
    least, most = stream.min_items, stream.max_items
    if least is not None and most is not None and least > most:
        raise Invalid(f"min_items {least} is above max_items {most}", "Raise max_items, or lower min_items.")
    return stream


def _shown(stream: Stream) -> Row:
    """Its document, without what is unset."""
    return {name: value for name, value in stream.stored().items() if value is not None}


@asynccontextmanager
async def _streams(settings: Settings) -> AsyncGenerator[AsyncCollection[Row]]:
    async with installation(settings) as at:
        yield at.database[at.settings.names[Stream.COLLECTION]]
