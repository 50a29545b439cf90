"""A chat application's database, a tailer (in this process or as one of its own), and what arrives on Kafka."""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from pymongo import AsyncMongoClient

from eden_memory.assembly import tailer as source_tailing
from eden_memory.kafka.connection import client_kwargs
from eden_memory.mongo.client import connect
from eden_memory.mongo.ids import encode_id
from eden_memory.schemas.documents import DeadLetter
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import MessageRecorded, Watermark, decode
from eden_memory.schemas.events.base import Event
from eden_memory.settings import MessagesSettings, Settings
from eden_memory.stages.publishing import partition_for
from tests.awaiting import SOON, until

PARTITIONS = 3
TOPICS = ("chat.messages", "memory.candidates", "memory.commands", "memory.forgotten")
COMMAND = (sys.executable, "-m", "eden_memory.cli.main", "run", "tailer")


@dataclass(frozen=True)
class Arrived:
    """One record as it came."""

    partition: int
    offset: int
    key: str
    value: bytes | None
    headers: dict[str, str]

    @property
    def envelope(self) -> Envelope:
        return Envelope.of_headers([(name, value.encode()) for name, value in self.headers.items()])

    @property
    def event(self) -> Event:
        assert self.value is not None
        return decode(self.envelope.name, self.envelope.version, self.value)

    @property
    def message(self) -> MessageRecorded:
        assert isinstance(self.event, MessageRecorded)
        return self.event

    @property
    def mark(self) -> str:
        """The version of a watermark."""
        assert isinstance(self.event, Watermark)
        return self.event.version

    @property
    def ended(self) -> str | None:
        """Why a tombstone ends its message; None for a record with a value."""
        return None if self.value is not None else self.envelope.reason


class Topic:
    """Everything that has arrived on a topic, committed or not; read on by `until`."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self.everything: list[Arrived] = []

    @property
    def records(self) -> list[Arrived]:
        """Without the watermarks."""
        return [one for one in self.everything if not one.key.startswith("watermark:")]

    @property
    def marks(self) -> list[Arrived]:
        return [one for one in self.everything if one.key.startswith("watermark:")]

    @property
    def texts(self) -> list[str]:
        """Texts of the messages recorded, as they came."""
        return [
            one.event.text for one in self.records if one.value and isinstance(one.event, MessageRecorded)
        ]

    def last(self) -> dict[str, str]:
        """What compaction leaves: text by key; a key that stands in two partitions says so."""
        standing: dict[tuple[int, str], Arrived] = {}
        for one in self.records:
            standing[one.partition, one.key] = one
        texts: dict[str, str] = {}
        for (_, key), one in standing.items():
            if one.value is not None:
                texts[key] = f"twice: {key}" if key in texts else one.message.text
        return texts

    async def read(self) -> None:
        """What has come since."""
        for batch in (await self._consumer.getmany(timeout_ms=50, max_records=5_000)).values():
            self.everything += [_arrived(one) for one in batch]

    async def until(self, condition: Callable[[], Any], what: str, seconds: float = SOON) -> None:
        end = time.monotonic() + seconds
        while not condition():
            said = [one.key for one in self.records[-5:]]
            assert time.monotonic() < end, f"not within {seconds} s: {what}; {len(self.records)}: … {said}"
            await self.read()

    async def until_marked(self) -> None:
        """Until every partition has a watermark newer than all that is there: then nothing is on its way."""
        newest = max([one.envelope.id.partition("@")[2] for one in self.everything], default="")
        begun = len(self.everything)

        def marked() -> bool:
            fresh = [one for one in self.everything[begun:] if one.key.startswith("watermark:")]
            return {one.partition for one in fresh if one.mark > newest} == set(range(PARTITIONS))

        await self.until(marked, "a watermark in every partition")


def _arrived(one: Any) -> Arrived:
    headers = {name: value.decode() for name, value in one.headers}
    return Arrived(one.partition, one.offset, (one.key or b"").decode(), one.value, headers)


class Kit:
    """The application's side, and the way to look at what came of it."""

    def __init__(self, settings: Settings, mongo: AsyncMongoClient[dict[str, Any]]) -> None:
        self.settings, self.mongo = settings, mongo
        assert settings.kafka.bootstrap is not None
        self.client = client_kwargs(settings.kafka, settings.kafka.bootstrap)
        self.source = mongo[settings.source_database]
        self.messages = self.source[settings.messages.collection]
        self.inbox = self.source[source_tailing.inbox_name(settings)]

    async def insert(self, number: int, **fields: Any) -> dict[str, Any]:
        """One message, written as an application would."""
        document = message(number, **fields)
        await self.messages.insert_one(document)
        return document

    async def kept_before(self) -> None:
        """Have the server keep pre-images of the messages collection, anew."""
        await self.messages.drop()
        await self.source.create_collection(
            self.messages.name, changeStreamPreAndPostImages={"enabled": True}
        )

    def with_tailer(self, **fields: Any) -> Settings:
        """The settings, some of the tailer's changed."""
        return self.settings.model_copy(update={"tailer": self.settings.tailer.model_copy(update=fields)})

    @asynccontextmanager
    async def tailing(
        self, settings: Settings | None = None, *, new_source: bool = False
    ) -> AsyncGenerator[Any]:
        """A tailer in this process for the block, stopped cleanly after it; what it raises is raised."""
        async with source_tailing.tailing(settings or self.settings, new_source=new_source) as part:
            task = asyncio.create_task(part.run())
            try:
                yield part
            finally:
                part.stop()
                await task

    @asynccontextmanager
    async def topic(
        self, short: str = "chat.messages", isolation: str = "read_uncommitted"
    ) -> AsyncGenerator[Topic]:
        """A topic, read from its beginning."""
        name = self.settings.kafka.topic_prefix + short
        consumer: Any = AIOKafkaConsumer(
            name, **self.client, auto_offset_reset="earliest", isolation_level=isolation
        )
        await consumer.start()
        try:
            yield Topic(consumer)
        finally:
            await consumer.stop()

    async def letters(self, count: int = 0) -> list[DeadLetter]:
        """All dead letters, oldest first, once there are at least `count`."""
        stored = self.mongo[self.settings.mongodb.database][self.settings.names[DeadLetter.COLLECTION]]
        rows: list[Any] = []

        async def there() -> bool:
            rows[:] = await stored.find(sort=[("at", 1)]).to_list()
            return len(rows) >= count

        await until(there, f"{count} dead letters")
        return [DeadLetter.model_validate(row, strict=False) for row in rows]

    async def position(self) -> dict[str, Any]:
        """The stored position, {} before there is one."""
        positions = self.mongo[self.settings.mongodb.database][self.settings.names["positions"]]
        return await positions.find_one({"_id": self.settings.source_name}) or {}

    async def spoil_position(self, token: str) -> None:
        positions = self.mongo[self.settings.mongodb.database][self.settings.names["positions"]]
        await positions.update_one({"_id": self.settings.source_name}, {"$set": {"token": token}})

    async def following(self) -> None:
        """Until the stored position says that everything older is read in."""

        async def streams() -> bool:
            return (await self.position()).get("phase") == "stream"

        await until(streams, "the stream is followed")

    def partition(self, session: Any) -> int:
        return partition_for(encode_id(session).encode(), PARTITIONS)


def message(number: int, **fields: Any) -> dict[str, Any]:
    whole = {"session_id": f"s{number % 5}", "role": "user", "content": f"text {number}", "user_id": "ann"}
    return {"_id": number, **whole, **fields}


@asynccontextmanager
async def kit(settings: Settings, topics: Sequence[str] = TOPICS) -> AsyncGenerator[Kit]:
    """Topics and connections of one test."""
    uri = settings.mongodb.uri
    assert uri is not None
    async with connect(uri.get_secret_value()) as mongo:
        made = Kit(settings, mongo)
        admin: Any = AIOKafkaAdminClient(**made.client)
        await admin.start()
        try:
            prefix = settings.kafka.topic_prefix
            large = {"max.message.bytes": "5000000"}
            await admin.create_topics(
                [NewTopic(prefix + one, PARTITIONS, 1, topic_configs=large) for one in topics]
            )
        finally:
            await admin.close()
        await made.source.create_collection(made.messages.name)
        yield made


class TailerProcess:
    """`eden run tailer` in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process, self.log = process, log

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    async def until_said(self, words: str, seconds: float = SOON) -> None:
        await until(lambda: words in self.said, f"{words!r} in {self.said[-2_000:]}", seconds)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    async def ended(self, seconds: float = SOON) -> int:
        """Its exit code."""
        async with asyncio.timeout(seconds):
            return await self.process.wait()


@asynccontextmanager
async def tailer_process(settings: Settings, log: Path, *options: str) -> AsyncGenerator[TailerProcess]:
    """A tailer for the block, killed after it if it still runs."""
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            *options,
            env={**os.environ, **_environment(settings)},
            stdout=file,
            stderr=file,
            cwd=log.parent,
        )
    try:
        yield TailerProcess(process, log)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _environment(settings: Settings) -> dict[str, str]:
    assert settings.mongodb.uri is not None
    assert settings.kafka.bootstrap is not None
    messages, default = settings.messages, MessagesSettings()
    paths = ("list", "session_id", "user_id", "role", "content", "created_at")
    mapped = {
        name: getattr(messages, name) for name in paths if getattr(messages, name) != getattr(default, name)
    }
    return {
        **{f"EDEN_MESSAGES_{name.upper()}": path for name, path in mapped.items()},
        "EDEN_MONGODB_URI": settings.mongodb.uri.get_secret_value(),
        "EDEN_MONGODB_DATABASE": settings.mongodb.database,
        "EDEN_SOURCE_DATABASE": settings.source_database,
        "EDEN_MESSAGES_COLLECTION": settings.messages.collection,
        "EDEN_MESSAGES_ROLES": json.dumps(settings.messages.roles),
        "EDEN_KAFKA_BOOTSTRAP": settings.kafka.bootstrap,
        "EDEN_KAFKA_TOPIC_PREFIX": settings.kafka.topic_prefix,
        "EDEN_KAFKA_GROUP_PREFIX": settings.kafka.group_prefix,
        "EDEN_KAFKA_PARTITIONS": str(settings.kafka.partitions or PARTITIONS),
        "EDEN_TAILER_LEASE_SECONDS": str(settings.tailer.lease_seconds),
        "EDEN_TAILER_COMMIT_SECONDS": str(settings.tailer.commit_seconds),
        "EDEN_TAILER_WATERMARK_SECONDS": str(settings.tailer.watermark_seconds),
        "EDEN_TAILER_BATCH_MESSAGES": str(settings.tailer.batch_messages),
    }
