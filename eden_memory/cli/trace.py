"""`eden trace`: follow a message to the memory that came of it, or a memory back to the messages it rests on."""

import asyncio
import json
import re
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.text import Text
from rich.tree import Tree

from eden_memory.cli.memory.terminal import console
from eden_memory.cli.replay.live import live_settings
from eden_memory.errors import NotFound
from eden_memory.kafka.connection import client_kwargs
from eden_memory.kafka.topics import load_topics
from eden_memory.local.servers import endpoints
from eden_memory.mongo.bson_ids import encode_id
from eden_memory.mongo.client import connect
from eden_memory.mongo.given_ids import readings
from eden_memory.observability.causal_chain import (
    Node,
    Stored,
    from_blob,
    from_fact,
    from_message,
    from_reflection,
    window_forward,
)
from eden_memory.observability.causal_chain_store import MongoChain
from eden_memory.observability.scope_records import scope_records
from eden_memory.schemas.documents import Fact, Message, Reflection, WindowTexts
from eden_memory.schemas.events import (
    Event,
    FactChanged,
    FormationRequested,
    ReflectionFormed,
    ScopeConsolidated,
)
from eden_memory.schemas.provenance import Call
from eden_memory.settings import Settings

TOPICS = ("memory.facts", "memory.reflections", "memory.consolidations")
BLOB = re.compile(r"^((?:session|user|group|agent|shard):[^@]+?)(?:@(\d+))?$")
STYLES = {"message": "cyan", "window": "bold", "call": "yellow", "fact": "green", "reflection": "magenta"}


def trace(
    name: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="a message, a fact (with @VERSION or without), a reflection, a formation, "
            "or a blob by its scope key: user:s.AGENT:s.USER, …@VERSION",
        ),
    ],
    content: Annotated[bool, typer.Option("--content", help="texts too: they are people's words")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on standard output")] = False,
) -> None:
    """Follow a message to the memory that came of it, or a memory back to its messages; from stored data alone."""
    node = asyncio.run(chain_of(Settings(), name))
    if as_json:
        told = node.as_dict(content=content)
        typer.echo(json.dumps(told, indent=2, ensure_ascii=False, default=_plain))
        return
    tree = Tree(_line(node, content=content))
    _grow(tree, node.nodes, content=content)
    console().print(tree)


def _grow(tree: Tree, nodes: Sequence[Node], *, content: bool) -> None:
    for one in nodes:
        _grow(tree.add(_line(one, content=content)), one.nodes, content=content)


def _line(node: Node, *, content: bool) -> Text:
    """Kind and id, what is known of it, its text below where asked for; never read as markup."""
    line = Text.assemble((node.kind, STYLES.get(node.kind, "")), " ", node.id)
    for name, value in node.told.items():
        if value not in (None, [], {}, False):
            shown = ", ".join(value) if isinstance(value, list) else str(_plain(value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
            line.append(f"  {name.replace('_', ' ')} ", style="dim").append(shown)
    if content and node.content:
        line.append("\n").append(node.content, style="italic")
    return line


def _plain(value: Any) -> Any:
    return value.isoformat(timespec="seconds") if isinstance(value, datetime) else str(value)


async def chain_of(settings: Settings, name: str) -> Node:
    """The chain of a message, fact, reflection, formation or blob; an EdenError if nothing has that name."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connect(settings.mongodb, endpoints(settings).mongodb))
        database = client[settings.mongodb.database]
        settings = await live_settings(settings, database)
        reading = Reading(settings, MongoChain(database, settings.names))
        return await reading.chain(name)


class Reading:
    """Finds out what a name means, and reads what its chain needs."""

    def __init__(self, settings: Settings, mongo: MongoChain) -> None:
        self._settings, self._mongo = settings, mongo

    async def chain(self, name: str) -> Node:
        """The chain of what the name means; an EdenError if nothing has it."""
        if (blob := BLOB.match(name)) is not None:
            return await self._blob(blob[1], int(blob[2]) if blob[2] else None)
        if (fact := await self._mongo.one(Fact, name.partition("@")[0])) is not None:
            return from_fact(await self._back([fact["scope_key"]], fact=fact["_id"]), fact["_id"])
        if (row := await self._mongo.one(Reflection, name)) is not None:
            stored = await self._back([row["scope_key"]], reflection=name)
            return from_reflection(stored, _the(stored.events, name))
        for given in (name, *(encode_id(one) for one in readings(name))):
            if (message := await self._mongo.one(Message, given)) is not None:
                return from_message(await self._forward(message["formation_id"], given), given)
        if await self._mongo.one(WindowTexts, name) is not None:
            return window_forward(await self._forward(name, None), name)
        raise NotFound(
            f"nothing is known under {name!r}",
            "Give a message's id, or that of a fact, reflection or formation, or a blob's scope key.",
        )

    async def _blob(self, scope_key: str, version: int | None) -> Node:
        stored = await self._back([scope_key])
        if not any(one.scope.key == scope_key and version in (None, one.version) for one in stored.blobs):
            raise NotFound(
                f"{scope_key} has no blob of that version", "See `eden context` for what is there."
            )
        return from_blob(stored, scope_key, version)

    async def _forward(self, formation_id: str | None, message_id: str | None) -> Stored:
        windows = await self._mongo.windows([formation_id])
        keys = [key for row in windows.values() for key in _scopes(row)]
        events = await self._events(keys) if keys else []
        named = [one.call_id for one in _calls(events, windows)]
        return Stored(
            windows=windows,
            messages=await self._mongo.messages([message_id] if message_id else []),
            calls=await self._mongo.calls(windows, named),
            contexts=await self._mongo.contexts(keys),
            events=events,
        )

    async def _back(
        self, keys: Sequence[str], *, fact: str | None = None, reflection: str | None = None
    ) -> Stored:
        events = [one for one in await self._events(keys) if _concerns(one, fact, reflection)]
        windows = await self._mongo.windows(_formations(events))
        sources = [source.message_id for one in events for source in getattr(one, "sources", ())]
        return Stored(
            windows=windows,
            messages=await self._mongo.messages(sources),
            calls=await self._mongo.calls((), [one.call_id for one in _calls(events, None)]),
            contexts=[],
            events=events,
        )

    async def _events(self, keys: Sequence[str]) -> list[Event]:
        topics = load_topics(self._settings.kafka, self._settings.placement)
        client = client_kwargs(self._settings.kafka, endpoints(self._settings).kafka)
        held = await scope_records(client, [topics.name(one) for one in TOPICS], keys)
        return [one.event for one in held]


def _concerns(event: Event, fact: str | None, reflection: str | None) -> bool:
    """Of one fact its versions; of one reflection itself and the blobs."""
    if fact is not None:
        return isinstance(event, FactChanged) and event.fact_id == fact
    if reflection is not None and isinstance(event, ReflectionFormed):
        return event.reflection_id == reflection
    return not isinstance(event, FactChanged)


def _formations(events: Iterable[Event]) -> list[str | None]:
    found: list[str | None] = []
    for one in events:
        if isinstance(one, FactChanged):
            found.append(one.statement.formation_id if one.statement else None)
        elif isinstance(one, ReflectionFormed):
            found.append(one.formation_id)
    return found


def _calls(events: Iterable[Event], windows: Iterable[str] | None) -> list[Call]:
    """The calls that records name; of these formations alone where some are given, blobs' always."""
    wanted = None if windows is None else set(windows)
    found: list[Call | None] = []
    for one in events:
        if isinstance(one, FactChanged):
            if wanted is None or (one.statement and one.statement.formation_id in wanted):
                found += [one.call, one.statement.call if one.statement else None]
        elif isinstance(one, ScopeConsolidated) or (
            isinstance(one, ReflectionFormed) and (wanted is None or one.formation_id in wanted)
        ):
            found.append(one.call)
    return [one for one in found if one is not None]


def _scopes(row: dict[str, Any]) -> list[str]:
    if row["requested"] is None:
        return []
    request = FormationRequested.model_validate_json(row["requested"], extra="ignore")
    return [one.key for one in request.scopes]


def _the(events: Iterable[Event], name: str) -> ReflectionFormed:
    for one in events:
        if isinstance(one, ReflectionFormed) and one.reflection_id == name:
            return one
    raise NotFound(f"the record of reflection {name} is gone", "It was forgotten, or its topic was emptied.")
