"""Causal chains and costs of memories, from stored data and records of the memory topics."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple
from urllib.parse import unquote

from aiokafka import TopicPartition
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.errors import NotFound
from eden_memory.kafka import KafkaArguments
from eden_memory.kafka.connection import client_kwargs
from eden_memory.kafka.record import Record
from eden_memory.kafka.topic_reading import partitions_asked, reading_partitions
from eden_memory.kafka.topics import load_topics
from eden_memory.local.servers import endpoints
from eden_memory.mongo.documents import plain
from eden_memory.mongo.ids import encode_id, readings
from eden_memory.observability.causal_chain import (
    Node,
    Stored,
    from_blob,
    from_fact,
    from_message,
    from_reflection,
    window_forward,
)
from eden_memory.replay.installation import Installation, installation
from eden_memory.schemas.documents import (
    Consolidated,
    Context,
    CountedCall,
    Fact,
    Message,
    Reflection,
    SessionState,
    WindowTexts,
)
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import (
    Event,
    FactChanged,
    FormationRequested,
    ReflectionFormed,
    ScopeConsolidated,
    decode,
)
from eden_memory.schemas.provenance import Call
from eden_memory.settings import Settings
from eden_memory.stages.partition_count_store import PartitionCounts
from eden_memory.stages.publishing import partition_for
from eden_memory.usage.costs import Share, of_blob, of_fact
from eden_memory.usage.usage_store import MongoTotals


class ScopeRecord(NamedTuple):
    """One record as a topic keeps it, without the vector of a fact: the largest part, which no reader needs."""

    envelope: Envelope
    event: Event


async def scope_records(
    kafka: KafkaArguments, topics: Sequence[str], scope_keys: Collection[str], used: Mapping[str, int]
) -> list[ScopeRecord]:
    """The newest record of each key in these topics (full names) that is of one of the scopes; none erased.

    `used`: the partitions that keys of a topic are spread over, of one that it does not name all.
    """
    there = {**Counter(tp.topic for tp in await partitions_asked(kafka, topics))}
    there = {topic: used.get(topic, count) for topic, count in there.items()}
    keys = {scope_key.encode() for scope_key in scope_keys}
    partitions = {TopicPartition(topic, partition_for(key, there[topic])) for topic in there for key in keys}
    if not partitions:
        return []
    found: dict[tuple[str, bytes | None], ScopeRecord | None] = {}
    async with reading_partitions(kafka, sorted(partitions)) as reader:
        async for batch in reader.batches():
            found.update(
                {
                    (record.topic, record.key): _scope_record(record)
                    for record in batch
                    if record.ordering_key in keys
                }
            )
    return [record for record in found.values() if record is not None]


def _scope_record(record: Record) -> ScopeRecord | None:
    if record.value is None:
        return None
    envelope = Envelope.of_headers(record.headers)
    return ScopeRecord(envelope, _without_vector(decode(envelope.name, envelope.version, record.value)))


def _without_vector(event: Event) -> Event:
    if not isinstance(event, FactChanged) or event.embedding is None:
        return event
    embedding = event.embedding.model_copy(update={"vector": b""})
    return event.model_copy(update={"embedding": embedding})


Row = dict[str, Any]

TOPICS = ("memory.facts", "memory.reflections", "memory.consolidations")

BLOB = re.compile(r"^((?:session|user|group|agent|shard):[^@]+?)(?:@(\d+))?$")

DOCUMENTS = (Consolidated, Context, CountedCall, Fact, Message, Reflection, SessionState, WindowTexts)


@dataclass(frozen=True, slots=True)
class Tracer:
    """Who may trace what is in these scopes, and messages of this user or session; ids typed."""

    scope_keys: frozenset[str]
    user_id: str | None
    session_id: str | None

    def sees(self, row: Row) -> bool:
        """Whether the tracer may see a document."""
        if "scope_key" in row:
            return row["scope_key"] in self.scope_keys
        authors = {message.get("user_id") for message in row.get("messages", [row])}
        return row["session_id"] == self.session_id or self.user_id in authors - {None}


class CausalChains:
    """Find out what an id stands for, and read its causal chain.

    Without a `tracer` it is an operator's tool: it reads every scope and checks no rights.
    """

    def __init__(
        self, settings: Settings, database: AsyncDatabase[Row], tracer: Tracer | None = None
    ) -> None:
        self._settings, self._tracer = settings, tracer
        self._partitions = PartitionCounts(database, settings.names)
        self._of = {document: database[settings.names[document.COLLECTION]] for document in DOCUMENTS}

    async def chain(self, name: str) -> Node:
        """Return the chain of the named thing; an EdenError if nothing has this name."""
        if (blob := BLOB.match(name)) is not None:
            key = await self._scope_key(blob[1])
            if self._tracer is None or key in self._tracer.scope_keys:
                return await self._blob(key, int(blob[2]) if blob[2] else None)
        if (fact := await self._find(Fact, name.partition("@")[0])) is not None:
            return from_fact(await self._back([fact["scope_key"]], fact=fact["_id"]), fact["_id"])
        if (row := await self._find(Reflection, name)) is not None:
            stored = await self._back([row["scope_key"]], reflection=name)
            return from_reflection(stored, _the(stored.events, name))
        for given in (name, *(encode_id(reading) for reading in readings(name))):
            if (message := await self._find(Message, given)) is not None:
                return from_message(await self._forward(message["formation_id"], given), given)
        session, _, rest = name.rpartition("/")
        for given in (name, *(f"{encode_id(reading)}/{rest}" for reading in readings(session))):
            if await self._find(WindowTexts, given) is not None:
                return window_forward(await self._forward(given, None), given)
        raise NotFound(
            f"nothing is known under {name!r}",
            "Give a message's id, or that of a fact, reflection or formation, or a blob's scope key.",
        )

    async def _scope_key(self, given: str) -> str:
        """The key of a scope that has a blob, given with typed ids or as the tree prints it."""
        kind, *ids = given.split(":")
        typed = product(*([encode_id(value) for value in readings(unquote(given_id))] for given_id in ids))
        for key in (given, *(":".join([kind, *parts]) for parts in typed)):
            if await self._find(Consolidated, key) is not None:
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
        windows = await self._windows([formation_id])
        keys = [key for row in windows.values() for key in _scopes(row)]
        events = await self._events(keys) if keys else []
        named = [call.call_id for call in _calls(events, windows)]
        return Stored(
            windows=windows,
            messages=await self._messages([message_id] if message_id else []),
            calls=await self._calls(windows, named),
            contexts=await self._contexts(keys),
            events=events,
        )

    async def _back(
        self, keys: Sequence[str], *, fact: str | None = None, reflection: str | None = None
    ) -> Stored:
        events = [event for event in await self._events(keys) if _concerns(event, fact, reflection)]
        windows = await self._windows(_formations(events))
        sources = [source.message_id for event in events for source in getattr(event, "sources", ())]
        return Stored(
            windows=windows,
            messages=await self._messages(sources),
            calls=await self._calls((), [call.call_id for call in _calls(events, None)]),
            contexts=[],
            events=events,
        )

    async def _events(self, keys: Sequence[str]) -> list[Event]:
        topics = load_topics(self._settings.kafka, self._settings.placement)
        kafka = client_kwargs(self._settings.kafka, endpoints(self._settings).kafka)
        used = await self._partitions.used()
        records = await scope_records(kafka, [topics.name(topic) for topic in TOPICS], keys, used)
        return [record.event for record in records]

    async def _find(self, document: Any, name: str) -> Row | None:
        """Return a document by its id; None if the tracer may not see it."""
        row = await self._of[document].find_one({"_id": name})
        return row if row is None or self._tracer is None or self._tracer.sees(row) else None

    async def _windows(self, formation_ids: Iterable[str | None]) -> dict[str, Row]:
        """Closed windows, without their texts, each with what its session waits for."""
        rows = await self._by_id(WindowTexts, formation_ids, {"messages.text": 0, "before.text": 0})
        unasked = [row["session_id"] for row in rows.values() if row["requested"] is None]
        waiting = await self._by_id(SessionState, unasked, {"waits_for": 1})
        for row in rows.values():
            row["waits_for"] = waiting.get(row["session_id"], {}).get("waits_for")
        return rows

    async def _messages(self, message_ids: Iterable[str]) -> dict[str, Row]:
        """Return messages as formation-trigger knows them; a formed one has its text while the window keeps it."""
        rows = await self._by_id(Message, message_ids)
        formations = [row["formation_id"] for row in rows.values()]
        for window in (await self._by_id(WindowTexts, formations, {"messages": 1})).values():
            for message in window["messages"]:
                if message["message_id"] in rows:
                    rows[message["message_id"]]["text"] = message["text"]
        return rows

    async def _calls(self, formation_ids: Iterable[str], call_ids: Iterable[str]) -> dict[str, Row]:
        """Counted calls: all of these formations, and those named."""
        either = [{"formation_id": {"$in": list(formation_ids)}}, {"_id": {"$in": list(call_ids)}}]
        rows = await self._of[CountedCall].find({"$or": either}).to_list()
        for row in rows:
            row["cost_usd"] = None if row["cost_usd"] is None else f"{plain(row['cost_usd']):f}"
        return {row["_id"]: row for row in rows}

    async def _contexts(self, scope_keys: Iterable[str]) -> list[Row]:
        """Ready contexts that show any of these scopes."""
        wanted = {"scope_keys": {"$in": list(scope_keys)}}
        return await self._of[Context].find(wanted, sort=[("_id", 1)], limit=100).to_list()

    async def _by_id(
        self, document: Any, names: Iterable[str | None], fields: Row | None = None
    ) -> dict[str, Row]:
        wanted = [name for name in dict.fromkeys(names) if name is not None]
        rows = await self._of[document].find({"_id": {"$in": wanted}}, fields).to_list() if wanted else []
        return {row["_id"]: row for row in rows}


def _concerns(event: Event, fact: str | None, reflection: str | None) -> bool:
    """Return the versions of a fact, or a reflection and the blobs."""
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


FACTS, BLOBS = ("memory.facts",), ("memory.consolidations", "memory.reflections")


async def shares_of(settings: Settings, name: str) -> list[Share]:
    """Return the cost that each call added to a fact or blob; NotFound if there is none of that name."""
    async with installation(settings) as at:
        names = at.settings.names
        fact = await at.database[names[Fact.COLLECTION]].find_one({"_id": name.partition("@")[0]})
        if fact is None:
            return await _of_blob(at, name)
        events = await _events(at, FACTS, fact["scope_key"])
        versions = [
            event for event in events if isinstance(event, FactChanged) and event.fact_id == fact["_id"]
        ]
        vectors = [used.embedding.call_id for used in versions if used.embedding and used.embedding.call_id]
        return of_fact(versions, await MongoTotals(at.database, names).embedded(vectors))


async def _of_blob(at: Installation, name: str) -> list[Share]:
    scope_key, _, version = name.partition("@")
    events = await _events(at, BLOBS, scope_key) if ":" in scope_key else []
    newest = int(version) if version.isdecimal() else None
    versions = [
        event
        for event in events
        if isinstance(event, ScopeConsolidated) and (newest is None or event.version <= newest)
    ]
    if not versions:
        raise NotFound(
            f"there is no fact and no blob {name}", "Give a fact's id, or a scope key as user:A:U."
        )
    return of_blob(versions, [event for event in events if isinstance(event, ReflectionFormed)])


async def _events(at: Installation, short: Sequence[str], scope_key: str) -> list[Event]:
    topics, used = at.topics(at.settings.placement), PartitionCounts(at.database, at.settings.names).used
    records = await scope_records(
        at.kafka, [topics.name(topic) for topic in short], [scope_key], await used()
    )
    return [record.event for record in records]
