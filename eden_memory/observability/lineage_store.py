"""Read the lineage of memories: message → window → call → decision → memory → context.

`eden trace` and `eden cost memory` read it with the records of the memory topics, an undo reads these records, and
the inspector and `eden why` what MongoDB alone has.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import product
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.access.visible import Asker
from eden_memory.context.context_xml import one_line
from eden_memory.directory.participants import Audiences
from eden_memory.errors import NotFound
from eden_memory.memory.memory_views import FactView
from eden_memory.mongo.documents import plain
from eden_memory.mongo.ids import encode_id, readings
from eden_memory.names import Names
from eden_memory.observability.lineage import (
    Lineage,
    Memory,
    Node,
    Share,
    calls_of,
    formation_of,
    message_node,
    shares_of_blob,
    shares_of_fact,
)
from eden_memory.replay.installation import Installation
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
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.stages.partition_count_store import PartitionCounts
from eden_memory.windows.formation_requests import texts_of

if TYPE_CHECKING:
    from eden_memory.kafka import KafkaArguments
    from eden_memory.kafka.record import Record

Row = dict[str, Any]
TOPICS = ("memory.facts", "memory.reflections", "memory.consolidations")
BLOB = re.compile(r"^((?:session|user|group|agent|shard):[^@]+?)(?:@(\d+))?$")
DOCUMENTS = (Consolidated, Context, CountedCall, Fact, Message, Reflection, SessionState, WindowTexts)
MOST_CONTEXTS, MOST_MESSAGES, MOST_TRACED_CONTEXTS = 20, 100, 100


async def versions_in(at: Installation, scope_keys: Collection[str]) -> list[Memory]:
    """Return the versions of all memory of these scopes that their topics hold, without vectors; none erased."""
    topics = at.topics(at.settings.placement)
    used = await PartitionCounts(at.database, at.settings.names).used()
    found = await scope_records(at.kafka, [topics.name(topic) for topic in TOPICS], scope_keys, used)
    return [event for event in found if isinstance(event, Memory)]


async def scope_records(
    kafka: "KafkaArguments", topics: Sequence[str], scope_keys: Collection[str], used: Mapping[str, int]
) -> list[Event]:
    """The newest event of each key in these topics (full names) that is of one of the scopes; none erased.

    `used`: the partitions that keys of a topic are spread over, of one that it does not name all.
    """
    from aiokafka import TopicPartition  # noqa: PLC0415 - of the extra `run`

    from eden_memory.kafka.topic_reading import partitions_asked, reading_partitions  # noqa: PLC0415
    from eden_memory.stages.publishing import partition_for  # noqa: PLC0415

    there = {**Counter(tp.topic for tp in await partitions_asked(kafka, topics))}
    there = {topic: used.get(topic, count) for topic, count in there.items()}
    keys = {scope_key.encode() for scope_key in scope_keys}
    partitions = {TopicPartition(topic, partition_for(key, there[topic])) for topic in there for key in keys}
    if not partitions:
        return []
    found: dict[tuple[str, bytes | None], Event | None] = {}
    async with reading_partitions(kafka, sorted(partitions)) as reader:
        async for batch in reader.batches():
            for record in batch:
                if record.ordering_key in keys:
                    found[record.topic, record.key] = _event(record)
    return [event for event in found.values() if event is not None]


def _event(record: "Record") -> Event | None:
    """Return a record's event without the vector of a fact: the largest part, which no reader needs."""
    if record.value is None:
        return None
    envelope = Envelope.of_headers(record.headers)
    event = decode(envelope.name, envelope.version, record.value)
    if isinstance(event, FactChanged) and event.embedding is not None:
        embedding = event.embedding.model_copy(update={"vector": b""})
        return event.model_copy(update={"embedding": embedding})
    return event


class StoredLineage:
    """The part of all lineage that MongoDB has."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        self._of = {document: database[names[document.COLLECTION]] for document in DOCUMENTS}

    async def find(self, document: Any, name: str) -> Row | None:
        """Return a document by its id."""
        return await self._of[document].find_one({"_id": name})

    async def by_id(
        self, document: Any, names: Iterable[str | None], fields: Row | None = None
    ) -> dict[str, Row]:
        """Return documents by their ids."""
        wanted = [name for name in dict.fromkeys(names) if name is not None]
        rows = await self._of[document].find({"_id": {"$in": wanted}}, fields).to_list() if wanted else []
        return {row["_id"]: row for row in rows}

    async def windows(self, formation_ids: Iterable[str | None]) -> dict[str, Row]:
        """Return closed windows, without their texts, each with what its session waits for."""
        rows = await self.by_id(WindowTexts, formation_ids, {"messages.text": 0, "before.text": 0})
        unasked = [row["session_id"] for row in rows.values() if row["requested"] is None]
        waiting = await self.by_id(SessionState, unasked, {"waits_for": 1})
        for row in rows.values():
            row["waits_for"] = waiting.get(row["session_id"], {}).get("waits_for")
        return rows

    async def messages(self, message_ids: Iterable[str]) -> dict[str, Row]:
        """Return messages as formation-trigger knows them; a formed one has its text while the window keeps it."""
        rows = await self.by_id(Message, message_ids)
        formations = [row.get("formation_id") for row in rows.values()]
        windows = await self.by_id(WindowTexts, formations, {"messages": texts_of(list(rows))})
        texts = {
            message["message_id"]: message["text"] for row in windows.values() for message in row["messages"]
        }
        for name, row in rows.items():
            gone = row.get("deleted") or row.get("forgotten")
            row["text"] = None if gone else row.get("text") or texts.get(name)
        return rows

    async def calls(self, formation_ids: Iterable[str], call_ids: Iterable[str] = ()) -> dict[str, Row]:
        """Return counted calls, the first first: all of these formations, and those named."""
        either = [{"formation_id": {"$in": list(formation_ids)}}, {"_id": {"$in": list(call_ids)}}]
        rows = await self._of[CountedCall].find({"$or": either}, sort=[("started_at", 1)]).to_list()
        for row in rows:
            row["cost_usd"] = None if row.get("cost_usd") is None else plain(row["cost_usd"])
        return {row["_id"]: row for row in rows}

    async def contexts(self, scope_keys: Iterable[str], **of: str | None) -> list[Row]:
        """Return the newest ready contexts that show any of these scopes; `of`: of a session or user alone."""
        wanted = {name: value for name, value in of.items() if value is not None}
        wanted |= {"scope_keys": {"$in": list(scope_keys)}}
        found = self._of[Context].find(wanted, sort=[("active_until", -1)], limit=MOST_TRACED_CONTEXTS)
        return await found.to_list()


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


class LineageReader:
    """Find out what an id stands for, and read its lineage or cost.

    Without a `tracer` it is an operator's tool: it reads every scope and checks no rights.
    """

    def __init__(self, at: Installation, tracer: Tracer | None = None) -> None:
        self._at, self._tracer = at, tracer
        self._stored = StoredLineage(at.database, at.settings.names)

    async def tree(self, name: str) -> Node:
        """Return the lineage of the named thing; an EdenError if nothing has this name."""
        if (blob := BLOB.match(name)) is not None:
            key = await self._scope_key(blob[1])
            if self._tracer is None or key in self._tracer.scope_keys:
                return await self._blob(key, int(blob[2]) if blob[2] else None)
        if (fact := await self._find(Fact, name.partition("@")[0])) is not None:
            return (await self._back(await self._facts(fact))).of_fact(fact["_id"])
        if (row := await self._find(Reflection, name)) is not None:
            return await self._reflection(row)
        for given in (name, *(encode_id(reading) for reading in readings(name))):
            if (message := await self._find(Message, given)) is not None:
                return (await self._forward(message["formation_id"], given)).of_message(given)
        session, _, rest = name.rpartition("/")
        for given in (name, *(f"{encode_id(reading)}/{rest}" for reading in readings(session))):
            if await self._find(WindowTexts, given) is not None:
                return (await self._forward(given, None)).of_window(given)
        raise NotFound(
            f"nothing is known under {name!r}",
            "Give a message's id, or that of a fact, reflection or formation, or a blob's scope key.",
        )

    async def shares(self, name: str) -> list[Share]:
        """Return the cost that each call added to a fact or blob; NotFound if there is none of that name."""
        if (fact := await self._find(Fact, name.partition("@")[0])) is not None:
            versions = sorted(await self._facts(fact), key=lambda version: version.version)
            vectors = [found.embedding.call_id for found in versions if found.embedding]
            from eden_memory.usage.usage_store import MongoTotals  # noqa: PLC0415 - loads what calls models

            totals = MongoTotals(self._at.database, self._at.settings.names)
            return shares_of_fact(versions, await totals.embedded(name for name in vectors if name))
        scope_key, _, version = name.partition("@")
        lineage = Lineage({}, {}, {}, await versions_in(self._at, [scope_key]) if ":" in scope_key else [])
        blobs = lineage.blob_versions(scope_key, int(version) if version.isdecimal() else None)
        if not blobs:
            raise NotFound(
                f"there is no fact and no blob {name}", "Give a fact's id, or a scope key as user:A:U."
            )
        formed = (event for event in lineage.events if isinstance(event, ReflectionFormed))
        return shares_of_blob(blobs, formed)

    async def _find(self, document: Any, name: str) -> Row | None:
        """Return a document by its id; None if the tracer may not see it."""
        row = await self._stored.find(document, name)
        return row if row is None or self._tracer is None or self._tracer.sees(row) else None

    async def _scope_key(self, given: str) -> str:
        """The key of a scope that has a blob, given with typed ids or as the tree prints it."""
        kind, *ids = given.split(":")
        typed = product(*([encode_id(value) for value in readings(unquote(given_id))] for given_id in ids))
        for key in (given, *(":".join([kind, *parts]) for parts in typed)):
            if await self._find(Consolidated, key) is not None:
                return key
        return given

    async def _facts(self, fact: Row) -> list[FactChanged]:
        found = await versions_in(self._at, [fact["scope_key"]])
        return [event for event in found if isinstance(event, FactChanged) and event.fact_id == fact["_id"]]

    async def _reflection(self, row: Row) -> Node:
        found = await versions_in(self._at, [row["scope_key"]])
        blobs = [event for event in found if isinstance(event, ScopeConsolidated)]
        for event in found:
            if isinstance(event, ReflectionFormed) and event.reflection_id == row["_id"]:
                return (await self._back([event, *blobs])).of_reflection(event)
        raise NotFound(
            f"the record of reflection {row['_id']} is gone", "It was forgotten, or its topic was emptied."
        )

    async def _blob(self, scope_key: str, version: int | None) -> Node:
        found = await versions_in(self._at, [scope_key])
        lineage = await self._back([event for event in found if not isinstance(event, FactChanged)])
        versions = lineage.blob_versions(scope_key, version)
        if not versions or version not in (None, versions[-1].version):
            raise NotFound(
                f"{scope_key} has no blob of that version", "See `eden context` for what is there."
            )
        return lineage.of_blob(versions)

    async def _forward(self, formation_id: str | None, message_id: str | None) -> Lineage:
        windows = await self._stored.windows([formation_id])
        keys = [key for row in windows.values() for key in _scopes(row)]
        events = [
            event
            for event in (await versions_in(self._at, keys) if keys else ())
            if isinstance(event, ScopeConsolidated) or formation_of(event) == formation_id
        ]
        return Lineage(
            windows,
            await self._stored.messages([message_id] if message_id else []),
            await self._stored.calls(windows, _call_ids(events)),
            events,
            await self._stored.contexts(keys),
        )

    async def _back(self, events: Sequence[Memory]) -> Lineage:
        sources = [source.message_id for event in events for source in getattr(event, "sources", ())]
        return Lineage(
            await self._stored.windows(map(formation_of, events)),
            await self._stored.messages(sources),
            await self._stored.calls((), _call_ids(events)),
            events,
        )


def _call_ids(events: Iterable[Memory]) -> list[str]:
    return [call.call_id for event in events for call in calls_of(event)]


def _scopes(row: Row) -> list[str]:
    if row["requested"] is None:
        return []
    request = FormationRequested.model_validate_json(row["requested"], extra="ignore")
    return [scope.key for scope in request.scopes]


@dataclass(frozen=True, slots=True)
class SourceWindow:
    """The window in which messages were formed; `formation_id` None: not known (any more)."""

    formation_id: str | None
    closed_because: str | None
    closed_at: datetime | None
    calls: int
    cost_usd: Decimal | None
    """The cost of its calls, while they are stored; None if no price is known."""
    messages: tuple[tuple[SourceMessage, Node], ...]
    """Their texts are None where memory does not keep them any more (windows do for seven days), or are another's."""


class VisibleLineage:
    """Reads the lineage that a caller may see: only texts of their own messages, only their own contexts.

    `users`: those whose texts the reader may see, None: everybody's. What memory keeps of a session may be of one
    who has left it.
    """

    def __init__(self, database: AsyncDatabase[Row], names: Names, users: frozenset[str] | None) -> None:
        self._stored, self._users = StoredLineage(database, names), users

    async def windows(self, sources: Sequence[SourceMessage]) -> tuple[SourceWindow, ...]:
        """Return the windows of these messages, oldest first."""
        sources = sources[-MOST_MESSAGES:]
        rows = await self._stored.messages(source.message_id for source in sources)
        readable = await self._readable(sources)
        grouped: dict[str | None, list[tuple[SourceMessage, Node]]] = {}
        for source in sorted(sources, key=lambda message: message.said_at):
            node = message_node(rows.get(source.message_id, {"_id": source.message_id}))
            if source.message_id not in readable:
                node.content = None
            grouped.setdefault(node.told["formation_id"], []).append((source, node))
        windows = await self._stored.windows(grouped)
        calls = await self._stored.calls(name for name in grouped if name is not None)
        found: list[SourceWindow] = []
        for name, messages in grouped.items():
            closed: Row = windows[name]["closed"] if name in windows else {}
            own = [call["cost_usd"] for call in calls.values() if name and call["formation_id"] == name]
            priced = [cost for cost in own if cost is not None]
            cost = sum(priced, Decimal(0)) if priced else None
            at = closed.get("at")
            found.append(SourceWindow(name, closed.get("because"), at, len(own), cost, tuple(messages)))
        return tuple(found)

    async def _readable(self, sources: Sequence[SourceMessage]) -> set[str]:
        """Return the messages whose texts may be shown; answers only if nobody else was ever in the session."""
        users = self._users
        if users is None:
            return {source.message_id for source in sources}
        answers = [source for source in sources if source.user_id is None and source.participants in (0, 1)]
        sessions = await self._stored.by_id(SessionState, (source.session_id for source in answers))
        own = {name for name, row in sessions.items() if _everybody_in(row) <= users}
        shown = [source for source in sources if source.user_id in users]
        shown += [answer for answer in answers if answer.session_id in own]
        return {source.message_id for source in shown}

    async def contexts(self, fact: FactView, asked: Asker) -> list[tuple[Row, bool]]:
        """Return the newest ready contexts that show the fact's scope, each with whether it has the fact's text."""
        found = await self._stored.contexts(
            [fact.scope.key], session_id=asked.session_id, user_id=asked.user_id
        )
        return [(row, one_line(fact.content) in row["xml"]) for row in found[:MOST_CONTEXTS]]


def _everybody_in(session: Row) -> set[str]:
    """Return all who have ever been in a session, as formation-trigger knows it; "" among them: unlisted ones."""
    changes = Audiences.of_row(session).changes
    unlisted = {""} if any(change.large is not None for change in changes) else set[str]()
    return {*session.get("users", ()), *(user for change in changes for user in change.joined)} | unlisted
