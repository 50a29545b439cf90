"""`eden trace`: follow a message to the memory that came of it, or a memory back to the messages it rests on."""

import asyncio
import json
import re
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from itertools import product
from typing import Annotated, Any
from urllib.parse import unquote

import typer
from rich.text import Text
from rich.tree import Tree

from eden_memory.cli.memory.terminal import as_written, console, plain
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
from eden_memory.replay.installation import live_settings
from eden_memory.schemas.documents import Consolidated, Fact, Message, Reflection, WindowTexts
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
SAID = ("reason", "waits_for", "model", "prompt")
"""Named in a node and no ids."""
STYLES = {"message": "cyan", "window": "bold", "call": "yellow", "fact": "green", "reflection": "magenta"}


def trace(
    name: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="a message, a fact (with @VERSION or without), a reflection, a formation, "
            "or a blob by its scope key: user:AGENT:USER, …@VERSION",
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
    for node in nodes:
        _grow(tree.add(_line(node, content=content)), node.nodes, content=content)


def _line(node: Node, *, content: bool) -> Text:
    """Kind and id, what is known of it, its text below where asked for; never read as markup."""
    line = Text.assemble((node.kind, STYLES.get(node.kind, "")), " ", as_written(node.id))
    for name, value in node.told.items():
        if value not in (None, [], {}, False):
            shown = ", ".join(value) if isinstance(value, list) else str(_plain(value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
            shown = plain(shown) if name in SAID else as_written(shown)
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
            return await self._blob(await self._scope_key(blob[1]), int(blob[2]) if blob[2] else None)
        if (fact := await self._mongo.one(Fact, name.partition("@")[0])) is not None:
            return from_fact(await self._back([fact["scope_key"]], fact=fact["_id"]), fact["_id"])
        if (row := await self._mongo.one(Reflection, name)) is not None:
            stored = await self._back([row["scope_key"]], reflection=name)
            return from_reflection(stored, _the(stored.events, name))
        for given in (name, *(encode_id(reading) for reading in readings(name))):
            if (message := await self._mongo.one(Message, given)) is not None:
                return from_message(await self._forward(message["formation_id"], given), given)
        session, _, rest = name.rpartition("/")
        for given in (name, *(f"{encode_id(one)}/{rest}" for one in readings(session))):
            if await self._mongo.one(WindowTexts, given) is not None:
                return window_forward(await self._forward(given, None), given)
        raise NotFound(
            f"nothing is known under {name!r}",
            "Give a message's id, or that of a fact, reflection or formation, or a blob's scope key.",
        )

    async def _scope_key(self, given: str) -> str:
        """The key of a scope that has a blob, given with typed ids or as the tree prints it."""
        kind, *ids = given.split(":")
        typed = product(*([encode_id(value) for value in readings(unquote(one))] for one in ids))
        for key in (given, *(":".join([kind, *parts]) for parts in typed)):
            if await self._mongo.one(Consolidated, key) is not None:
                return key
        return given

    async def _blob(self, scope_key: str, version: int | None) -> Node:
        stored = await self._back([scope_key])
        if not any(blob.scope.key == scope_key and version in (None, blob.version) for blob in stored.blobs):
            raise NotFound(
                f"{scope_key} has no blob of that version", "See `eden context` for what is there."
            )
        return from_blob(stored, scope_key, version)

    async def _forward(self, formation_id: str | None, message_id: str | None) -> Stored:
        windows = await self._mongo.windows([formation_id])
        keys = [key for row in windows.values() for key in _scopes(row)]
        events = await self._events(keys) if keys else []
        named = [call.call_id for call in _calls(events, windows)]
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
        events = [event for event in await self._events(keys) if _concerns(event, fact, reflection)]
        windows = await self._mongo.windows(_formations(events))
        sources = [source.message_id for event in events for source in getattr(event, "sources", ())]
        return Stored(
            windows=windows,
            messages=await self._mongo.messages(sources),
            calls=await self._mongo.calls((), [call.call_id for call in _calls(events, None)]),
            contexts=[],
            events=events,
        )

    async def _events(self, keys: Sequence[str]) -> list[Event]:
        topics = load_topics(self._settings.kafka, self._settings.placement)
        client = client_kwargs(self._settings.kafka, endpoints(self._settings).kafka)
        held = await scope_records(client, [topics.name(topic) for topic in TOPICS], keys)
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
    for event in events:
        if isinstance(event, FactChanged):
            found.append(event.statement.formation_id if event.statement else None)
        elif isinstance(event, ReflectionFormed):
            found.append(event.formation_id)
    return found


def _calls(events: Iterable[Event], windows: Iterable[str] | None) -> list[Call]:
    """The calls that records name; of these formations alone where some are given, blobs' always."""
    wanted = None if windows is None else set(windows)
    found: list[Call | None] = []
    for event in events:
        if isinstance(event, FactChanged):
            if wanted is None or (event.statement and event.statement.formation_id in wanted):
                found += [event.call, event.statement.call if event.statement else None]
        elif isinstance(event, ScopeConsolidated) or (
            isinstance(event, ReflectionFormed) and (wanted is None or event.formation_id in wanted)
        ):
            found.append(event.call)
    return [call for call in found if call is not None]


def _scopes(row: dict[str, Any]) -> list[str]:
    if row["requested"] is None:
        return []
    request = FormationRequested.model_validate_json(row["requested"], extra="ignore")
    return [scope.key for scope in request.scopes]


def _the(events: Iterable[Event], name: str) -> ReflectionFormed:
    for event in events:
        if isinstance(event, ReflectionFormed) and event.reflection_id == name:
            return event
    raise NotFound(f"the record of reflection {name} is gone", "It was forgotten, or its topic was emptied.")
