"""formation-trigger on real servers: records put into `chat.messages`, windows read from `memory.formations`."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer
from pymongo import AsyncMongoClient

from eden_memory import app
from eden_memory.domain.stage import Delivery
from eden_memory.mongo.client import connect
from eden_memory.runtime.contract.topic_admin import apply_topics
from eden_memory.runtime.contract.topics import load_topics
from eden_memory.runtime.kafka import admin_config, client_kwargs
from eden_memory.runtime.stages.publishing import new_producer, partition_for
from eden_memory.settings import Settings
from processors.pipeline import FORMATION_TRIGGER
from schemas.envelope import Envelope
from schemas.events import Forgotten, FormationRequested, Watermark, decode
from schemas.events.base import Event

PARTITIONS = 3
SOON = 60.0


class Kit:
    """Both sides of the stage."""

    def __init__(self, settings: Settings, mongo: AsyncMongoClient[dict[str, Any]], producer: Any) -> None:
        self.settings, self.mongo, self._producer = settings, mongo, producer
        assert settings.kafka.bootstrap is not None
        self.client = client_kwargs(settings.kafka, settings.kafka.bootstrap)
        self.database = mongo[settings.mongodb.database]

    async def put(self, deliveries: Iterable[Delivery]) -> None:
        """Records as a tailer sends them: a session's in its partition, what has no session in all of them."""
        sent = [
            await self._producer.send(
                self.settings.kafka.topic_prefix + "chat.messages",
                key=one.key.encode(),
                value=None if one.event is None else one.event.json_bytes(),
                headers=one.envelope.headers(),
                partition=partition,
            )
            for one in deliveries
            for partition in _partitions(one)
        ]
        for confirmed in sent:
            await confirmed

    @asynccontextmanager
    async def running(self, settings: Settings | None = None) -> AsyncGenerator[None]:
        """The stage, in this process, for the block; what it raises is raised."""
        async with app.stage_parts(settings or self.settings, {FORMATION_TRIGGER}) as (part,):
            task = asyncio.create_task(part.run())
            try:
                yield
            finally:
                part.stop()
                await task

    @asynccontextmanager
    async def topic(self, short: str = "memory.formations") -> AsyncGenerator["Topic"]:
        """A topic of results, from its beginning."""
        name = self.settings.kafka.topic_prefix + short
        consumer: Any = AIOKafkaConsumer(name, **self.client, auto_offset_reset="earliest")
        await consumer.start()
        try:
            yield Topic(consumer)
        finally:
            await consumer.stop()

    async def state(self, session: str) -> dict[str, Any]:
        """A session's document."""
        return await self.database["memory_sessions"].find_one({"_id": session}) or {}

    async def waiting(self) -> set[str]:
        """The messages that wait for a window."""
        found = self.database["memory_messages"].find({"formation_id": None, "place": {"$ne": None}})
        return {row["_id"] async for row in found}

    async def message(self, name: str) -> dict[str, Any]:
        """A message's document."""
        return await self.database["memory_messages"].find_one({"_id": name}) or {}


class Topic:
    """All that has come on a topic."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self.records: list[Any] = []

    async def read(self) -> None:
        """What has come since."""
        for batch in (await self._consumer.getmany(timeout_ms=100)).values():
            self.records += batch

    @property
    def events(self) -> list[Event]:
        """Decoded, each key once."""
        newest = {one.key: one for one in self.records}
        return [_event(one) for one in newest.values()]

    @property
    def windows(self) -> list[FormationRequested]:
        return [one for one in self.events if isinstance(one, FormationRequested)]

    @property
    def forgotten(self) -> list[Forgotten]:
        return [one for one in self.events if isinstance(one, Forgotten)]

    async def until(self, count: int, seconds: float = SOON) -> list[FormationRequested]:
        """Once there are so many different windows: all of them."""
        await self.until_true(
            lambda: len({one.key for one in self.records}) >= count, f"{count} keys", seconds
        )
        return self.windows

    async def until_true(self, condition: Callable[[], bool], what: str, seconds: float = SOON) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"not within {seconds} s: {what}; {len(self.records)} records"
            await self.read()


def _event(record: Any) -> Event:
    envelope = Envelope.of_headers(record.headers)
    return decode(envelope.name, envelope.version, record.value)


def _partitions(one: Delivery) -> list[int]:
    if isinstance(one.event, Watermark):
        return [one.event.partition]
    if one.event is None and one.envelope.scope is None:
        return list(range(PARTITIONS))
    return [partition_for(one.envelope.ordering_key.encode(), PARTITIONS)]


@asynccontextmanager
async def kit_for(settings: Settings) -> AsyncGenerator[Kit]:
    """Topics of a test, and connections."""
    settings = settings.model_copy(
        update={"kafka": settings.kafka.model_copy(update={"partitions": PARTITIONS})}
    )
    assert settings.mongodb.uri is not None
    assert settings.kafka.bootstrap is not None
    config = admin_config(settings.kafka, settings.kafka.bootstrap)
    await asyncio.to_thread(apply_topics, config, load_topics(settings.kafka))
    mongo = connect(settings.mongodb, settings.mongodb.uri.get_secret_value())
    producer = new_producer(client_kwargs(settings.kafka, settings.kafka.bootstrap))
    await producer.start()
    try:
        yield Kit(settings, mongo, producer)
    finally:
        await producer.stop()
        await mongo.close()


def changed(settings: Settings, **groups: dict[str, Any]) -> Settings:
    """The settings with some of some groups changed."""
    return settings.model_copy(
        update={name: getattr(settings, name).model_copy(update=fields) for name, fields in groups.items()}
    )
