"""Follow and count what a running system forms: messages, memories, calls and cost, lag."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from aiokafka.errors import KafkaError
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.kafka import KafkaArguments
from eden_memory.kafka.connection import client_kwargs
from eden_memory.kafka.groups import GroupAdmin, lags
from eden_memory.kafka.topic_reading import TopicOffsets, reading
from eden_memory.kafka.topics import load_topics
from eden_memory.local.servers import endpoints
from eden_memory.metrics import unpriced
from eden_memory.mongo.client import connect
from eden_memory.names import Names
from eden_memory.processors import pipeline
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import ModelCalled, decode
from eden_memory.settings import Settings
from eden_memory.tasks import end

NEWEST = 8


@dataclass(frozen=True, slots=True)
class WatchedChange:
    """A change of one document of a memory collection, by name without prefix (`facts`)."""

    collection: str
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NewMemory:
    """One new memory in the form in which it is shown."""

    what: str
    """fact, reflection or blob."""
    scope: str
    """The scope key."""
    text: str
    why: str = ""
    """A fact's decision and its reason; a blob's version and words."""


@dataclass(slots=True)
class CallTotals:
    """Calls of one stage; money where the price is known."""

    calls: int = 0
    failed: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: Decimal = Decimal(0)
    unpriced: int = 0


@dataclass(slots=True)
class FormationProgress:
    """Counts what is reported from MongoDB and Kafka, for display."""

    messages: int = 0
    windows: int = 0
    windowed: int = 0
    """Messages in windows."""
    decisions: Counter[str] = field(default_factory=Counter[str])
    reflections: Counter[str] = field(default_factory=Counter[str])
    """By kind of scope."""
    blobs: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Scope key → version, words; the newest last."""
    newest: deque[NewMemory] = field(default_factory=lambda: deque[NewMemory](maxlen=NEWEST))
    spent: dict[str, CallTotals] = field(default_factory=dict[str, CallTotals])
    lag: dict[str, int] = field(default_factory=dict[str, int])
    """Group → records that it has not read yet."""
    tell: Callable[[NewMemory], None] | None = None
    """Called with every new item."""
    _seen: set[tuple[str, str, int]] = field(default_factory=set[tuple[str, str, int]])

    def notice(self, change: WatchedChange) -> None:
        """Count a written document; each version counts once."""
        row = change.document
        version = int(row.get("version") or 1) if change.collection != "windows" else 1
        seen = (change.collection, str(row["_id"]), version)
        if seen in self._seen:
            return
        self._seen.add(seen)
        match change.collection:
            case "windows":
                self.windows += 1
                self.windowed += len(row.get("messages", ()))
            case "facts":
                self._fact(row)
            case "reflections":
                self._reflection(row)
            case "consolidated":
                self._blob(row)
            case _:
                pass

    def called(self, call: ModelCalled) -> None:
        """Count a model call; report each call once."""
        spent = self.spent.setdefault(call.stage, CallTotals())
        spent.calls += call.requests
        spent.failed += call.requests if call.outcome != "answered" else 0
        spent.tokens_in += call.input_tokens
        spent.tokens_out += call.output_tokens
        spent.cost += call.cost_usd or 0
        spent.unpriced += call.requests if unpriced(call) else 0

    @property
    def total(self) -> CallTotals:
        """Of all stages."""
        total = CallTotals()
        for spent in self.spent.values():
            total.calls += spent.calls
            total.failed += spent.failed
            total.tokens_in += spent.tokens_in
            total.tokens_out += spent.tokens_out
            total.cost += spent.cost
            total.unpriced += spent.unpriced
        return total

    def _fact(self, row: Mapping[str, Any]) -> None:
        decision = str(row.get("decision", "ADD"))
        self.decisions[decision] += 1
        why = f"{decision.lower()}: {row['reason']}" if row.get("reason") else decision.lower()
        if row.get("retired_at") is not None:
            why = f"retired, {row.get('retired_because')}"
        self._show(NewMemory("fact", row["scope_key"], row["content"], why))

    def _reflection(self, row: Mapping[str, Any]) -> None:
        if row.get("content"):
            self.reflections[str(row["scope"])] += 1
            self._show(NewMemory("reflection", row["scope_key"], row["content"]))

    def _blob(self, row: Mapping[str, Any]) -> None:
        words = len(str(row["content"]).split())
        self.blobs.pop(row["_id"], None)
        self.blobs[row["_id"]] = int(row["version"]), words
        why = f"version {row['version']}, {words} words"
        self._show(NewMemory("blob", row["_id"], row["content"], why))

    def _show(self, item: NewMemory) -> None:
        self.newest.append(item)
        if self.tell is not None:
            self.tell(item)


LAG_SECONDS = 1.0


@asynccontextmanager
async def watching(settings: Settings, progress: FormationProgress) -> AsyncGenerator[None]:
    """Keep `progress` up to date during the block; an error ends the block."""
    servers, topics = endpoints(settings), load_topics(settings.kafka, settings.placement)
    kafka = client_kwargs(settings.kafka, servers.kafka)
    groups = {topics.group(name): topics.read_by(name) for name in pipeline.NAMES}
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connect(servers.mongodb))
        database, names = client[settings.mongodb.database], settings.names
        memory = await stack.enter_async_context(memory_feed(database, names))
        calls = await stack.enter_async_context(usage_feed(kafka, topics.topic_of(ModelCalled)))
        read = sorted({topic for topics_read in groups.values() for topic in topics_read})
        offsets = await stack.enter_async_context(TopicOffsets(kafka, read))
        admin = await stack.enter_async_context(GroupAdmin(kafka))
        messages = database[names["messages"]]
        before = await messages.estimated_document_count()

        async def notice() -> None:
            async for change in memory:
                progress.notice(change)

        async def count_calls() -> None:
            async for call in calls:
                progress.called(call)

        async def count() -> None:
            while True:
                progress.messages = await messages.estimated_document_count() - before
                with suppress(KafkaError):  # a broker that has just started has no group coordinator yet
                    found = await lags(offsets, admin, groups)
                    progress.lag = {
                        name.removeprefix(topics.group_prefix): behind for name, behind in found.items()
                    }
                await asyncio.sleep(LAG_SECONDS)

        async with _running(notice(), count_calls(), count()):
            yield


@asynccontextmanager
async def _running(*work: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(coroutine) for coroutine in work]
        try:
            yield
        finally:
            await end(tasks)


COLLECTIONS = ("windows", "facts", "reflections", "consolidated")

VERSIONED = ("facts", "consolidated")


@asynccontextmanager
async def memory_feed(
    database: AsyncDatabase[dict[str, Any]], names: Names
) -> AsyncGenerator[AsyncGenerator[WatchedChange]]:
    """Yield what is new from the moment that the block is entered; vectors and histories are left out.

    New is a document, and a new version of a fact or blob: that a blob absorbs a reflection from before is not.
    """
    kinds = {names[name]: name for name in COLLECTIONS}
    pipeline: list[dict[str, Any]] = [
        {
            "$match": {
                "$or": [
                    {"ns.coll": {"$in": list(kinds)}, "operationType": "insert"},
                    {"ns.coll": {"$in": [names[name] for name in VERSIONED]}, "operationType": "replace"},
                ]
            }
        },
        {"$unset": ["fullDocument.embedding", "fullDocument.history", "updateDescription"]},
    ]
    async with await database.watch(pipeline, full_document="updateLookup") as stream:

        async def noticed() -> AsyncGenerator[WatchedChange]:
            async for change in stream:
                if change.get("fullDocument") is not None:
                    yield WatchedChange(kinds[change["ns"]["coll"]], change["fullDocument"])

        yield noticed()


@asynccontextmanager
async def usage_feed(kafka: KafkaArguments, topic: str) -> AsyncGenerator[AsyncGenerator[ModelCalled]]:
    """The calls published from the moment that the block is entered; an EdenError where there is no such topic."""
    async with reading(kafka, [topic]) as reader:
        reader.seek(reader.ends)
        yield _calls(reader.consumer)


async def _calls(consumer: Any) -> AsyncGenerator[ModelCalled]:
    seen: set[str] = set()
    async for record in consumer:
        envelope = Envelope.of_headers(record.headers)
        event = decode(envelope.name, envelope.version, record.value)
        if isinstance(event, ModelCalled) and event.call_id not in seen:
            seen.add(event.call_id)
            yield event
