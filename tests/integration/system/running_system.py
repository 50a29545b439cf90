"""The whole of formation on real servers, in this process; a test writes to MongoDB only, and looks at what comes."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from pymongo import AsyncMongoClient

from eden_memory.api.service import MemoryService
from eden_memory.assembly import tailer as source_tailing
from eden_memory.assembly.mongo_setup import set_up
from eden_memory.assembly.stage_parts import stage_parts
from eden_memory.kafka.connection import admin_config, client_kwargs
from eden_memory.kafka.topic_admin import apply_topics
from eden_memory.kafka.topics import load_topics
from eden_memory.models import judging
from eden_memory.mongo.client import connect
from eden_memory.mongo.ids import encode_id
from eden_memory.processors import pipeline
from eden_memory.schemas.documents import DeadLetter
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import decode
from eden_memory.schemas.events.base import Event
from eden_memory.settings import Settings
from eden_memory.source.inbox_store import ask
from eden_memory.stages.process import ProcessPart, State
from tests.awaiting import until
from tests.model_server.serving import Serving
from tests.tried_models import passed

PARTITIONS = 2
STOP_SECONDS = 90.0
AGENT = "helper"
MODEL_NAMES = {"fast": "fast-model", "free": "slow-model", "paid": "slow-model", "embeddings": "vector-model"}
Row = dict[str, Any]


class System:
    """One namespace: the application's side of it, and what memory makes of that."""

    def __init__(
        self, settings: Settings, mongo: AsyncMongoClient[Row], models: Serving, service: MemoryService
    ) -> None:
        self.settings, self.models, self.service = settings, models, service
        self.database = mongo[settings.mongodb.database]
        self.source = mongo[settings.source_database]
        assert settings.kafka.bootstrap is not None
        self.client = client_kwargs(settings.kafka, settings.kafka.bootstrap)
        self.admin = admin_config(settings.kafka, settings.kafka.bootstrap)
        self._written_at = datetime.min.replace(tzinfo=UTC)
        self.parts: Sequence[ProcessPart] = ()
        """What runs: the tailer and the stages."""

    def state(self, name: str) -> State:
        """What `/readyz` says of a part."""
        return next(one.state() for one in self.parts if one.name == name)

    def memory(self, name: str) -> Any:
        """One of our collections."""
        return self.database[self.settings.names[name]]

    async def session(self, *users: str, **fields: Any) -> str:
        """A session of these users and of nobody else; its id."""
        name = fields.pop("id", f"session-{uuid4().hex[:8]}")
        await self.source["sessions"].insert_one(
            {"_id": name, "agent_id": AGENT, "users": list(users)} | fields
        )
        return name

    async def write(self, session: str, user: str, *texts: str, at: datetime | None = None) -> list[str]:
        """Messages of a user, `created_at` now or a minute apart from `at` on; their ids."""
        rows: list[Row] = [
            {
                "_id": f"m-{uuid4().hex[:10]}",
                "session_id": session,
                "role": "user",
                "user_id": user,
                "content": text,
                "created_at": self._next_moment() if at is None else at + timedelta(minutes=number),
            }
            for number, text in enumerate(texts)
        ]
        await self.source["messages"].insert_many(rows)
        return [row["_id"] for row in rows]

    def _next_moment(self) -> datetime:
        """Now; no message has the moment of another, as MongoDB keeps it."""
        self._written_at = max(datetime.now(UTC), self._written_at + timedelta(milliseconds=1))
        return self._written_at

    async def form(self, session: str) -> None:
        """Have what is pending formed now."""
        await self._ask({"kind": "form_now", "session_id": session, "asked_by": "test"})

    async def end(self, session: str) -> None:
        """The session is over."""
        await self._ask({"kind": "session_ended", "session_id": session, "asked_by": "test"})

    async def forget(self, what: str, target: str) -> None:
        """As `eden forget` asks."""
        await self._ask({"kind": "forget", "what": what, "target": target, "asked_by": "test"})

    async def _ask(self, document: Row) -> None:
        await ask(self.source[source_tailing.inbox_name(self.settings)], document)

    async def told(self, session: str, user: str, *texts: str, at: datetime | None = None) -> list[str]:
        """Messages that are written and formed; returns once their facts and reflections are stored."""
        names = await self.write(session, user, *texts, at=at)
        await self.form(session)
        await self.formed(names, sum("fact " in one or "note " in one for one in texts))
        return names

    async def formed(self, messages: Collection[str], items: int) -> None:
        """Until so many facts and reflections rest on any of these messages."""
        wanted: Row = {"message_ids": {"$in": [encode_id(one) for one in messages]}}

        async def stored() -> bool:
            found = [await self.memory(name).count_documents(wanted) for name in ("facts", "reflections")]
            return sum(found) >= items  # more, once some were shown to a broader scope as well

        await until(stored, f"{items} items of {messages}")

    async def contents(self, collection: str, **query: Any) -> list[str]:
        """The contents of facts or reflections."""
        rows = await self.memory(collection).find(query).to_list()
        return sorted(row["content"] for row in rows)

    async def facts(self, user: str) -> list[str]:
        """The active facts of a user."""
        return await self.contents("facts", user_id=encode_id(user), active=True)

    async def snapshot(self, key: str) -> Row:
        """A scope's snapshot, {} before there is one."""
        return await self.memory("snapshots").find_one({"_id": key}) or {}

    async def context(self, session: str, user: str | None = None) -> str:
        """As the application reads it."""
        return await self.service.get_memory_context(session, user)

    async def shows(self, session: str, user: str, *texts: str, without: Sequence[str] = ()) -> str:
        """Until the context shows these texts and none of the others; the context."""

        async def so() -> bool:
            xml = await self.context(session, user)
            return all(one in xml for one in texts) and not any(one in xml for one in without)

        await until(so, f"{texts} and not {without} in the context of {session}")
        return await self.context(session, user)

    async def dead(self) -> list[Row]:
        """Outcomes of what stages have given up."""
        return await self.memory("outcomes").find({"dead": {"$ne": None}}).to_list()

    async def letters(self, short: str) -> list[DeadLetter]:
        """The dead letters of a topic's records."""
        of = {"topic": self.settings.kafka.topic_prefix + short}
        rows = await self.memory(DeadLetter.COLLECTION).find(of).to_list()
        return [DeadLetter.model_validate(row, strict=False) for row in rows]

    async def records(self, short: str) -> list["Came"]:
        """All records of a topic up to now."""
        name = self.settings.kafka.topic_prefix + short
        consumer: Any = AIOKafkaConsumer(**self.client, auto_offset_reset="earliest")
        await consumer.start()
        try:
            return await _whole(consumer, name, PARTITIONS)
        finally:
            await consumer.stop()


class Came:
    """One record of a topic."""

    def __init__(self, record: Any) -> None:
        self.key = (record.key or b"").decode()
        self.value: bytes | None = record.value
        self.headers = {name: value.decode() for name, value in record.headers}
        self.partition = record.partition

    @property
    def envelope(self) -> Envelope:
        return Envelope.of_headers([(name, value.encode()) for name, value in self.headers.items()])

    @property
    def event(self) -> Event:
        assert self.value is not None
        return decode(self.envelope.name, self.envelope.version, self.value)


async def _whole(consumer: Any, topic: str, count: int) -> list[Came]:
    partitions = [TopicPartition(topic, one) for one in range(count)]
    consumer.assign(partitions)
    ends = await consumer.end_offsets(partitions)
    found: list[Came] = []
    for partition in partitions:
        await consumer.seek_to_beginning(partition)
    while any([await consumer.position(one) < ends[one] for one in partitions]):
        for batch in (await consumer.getmany(timeout_ms=100)).values():
            found += [Came(one) for one in batch]
    return found


def fast(settings: Settings, served: Serving, /, **groups: dict[str, Any]) -> Settings:
    """The settings with everything mapped, models of the server, and short waits; some groups changed."""
    changes: dict[str, dict[str, Any]] = {
        "kafka": {"partitions": PARTITIONS},
        "sessions": {"collection": "sessions"},
        "users": {"collection": "users"},
        "models": {**MODEL_NAMES, "timeout_seconds": 20.0},
        "tailer": {"watermark_seconds": 0.5, "commit_seconds": 1.0},
        "run": {"drain_seconds": 5.0},
    }
    for name, fields in groups.items():
        changes[name] = {**changes.get(name, {}), **fields}
    updates: dict[str, Any] = {
        name: getattr(settings, name).model_copy(update=fields) for name, fields in changes.items()
    }
    return settings.model_copy(update={**updates, "llm": served.openai_url, "embedder": served.openai_url})


async def prepare(settings: Settings) -> None:
    """Topics, collections and indexes, as `eden setup` makes them; the models count as tried."""
    assert settings.kafka.bootstrap is not None
    assert settings.mongodb.uri is not None
    config = admin_config(settings.kafka, settings.kafka.bootstrap)
    await asyncio.to_thread(apply_topics, config, load_topics(settings.kafka))
    async with connect(settings.mongodb.uri.get_secret_value()) as client:
        await set_up(client[settings.mongodb.database], settings.names)
        names = (*MODEL_NAMES.values(), "shard-model", "blob-model")
        await passed(client[settings.mongodb.database], settings.names, settings.llm, *names)


@asynccontextmanager
async def _in_haste() -> AsyncGenerator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judging, "HOLD", min(judging.HOLD, 1.0))
        yield


@asynccontextmanager
async def stages(
    settings: Settings, names: Collection[str] = pipeline.NAMES
) -> AsyncGenerator[Sequence[ProcessPart]]:
    """Tailer and stages in this process for the block; what they raise is raised.

    A question that cannot be read waits a second, not a minute, for the answers to others.
    """
    async with (
        source_tailing.tailing(settings) as tailer,
        stage_parts(settings, names) as workers,
        _in_haste(),
    ):
        parts = [tailer, *workers]
        tasks = [asyncio.create_task(one.run()) for one in parts]
        try:
            yield parts
        finally:
            for one in parts:
                one.stop()
            _, left = await asyncio.wait(tasks, timeout=STOP_SECONDS)
            assert not left, f"not stopped: {left}"
            for task in tasks:
                task.result()


@asynccontextmanager
async def system(settings: Settings, models: Serving, *, run: bool = True) -> AsyncGenerator[System]:
    """A namespace set up, and everything running in it (or not: `run`)."""
    await prepare(settings)
    assert settings.mongodb.uri is not None
    async with (
        connect(settings.mongodb.uri.get_secret_value()) as mongo,
        MemoryService(AGENT, client=mongo, settings=settings) as service,
    ):
        found = System(settings, mongo, models, service)
        if not run:
            yield found
            return
        async with stages(settings) as found.parts:
            yield found
