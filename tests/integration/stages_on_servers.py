"""What tests of stages on real servers share: topics, connections, workers for a block, records in, records out."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer
from pydantic import SecretStr
from pymongo import AsyncMongoClient

from eden_memory.assembly.mongo_setup import set_up
from eden_memory.forgetting.mark_store import MongoForgetting
from eden_memory.housekeeping.topics_check import TopicsCheck
from eden_memory.kafka.connection import admin_config, client_kwargs
from eden_memory.kafka.topic_admin import apply_topics
from eden_memory.kafka.topics import load_topics
from eden_memory.mongo.client import connect
from eden_memory.schemas.documents import DeadLetter
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import REGISTRY, Forgotten, FormationRequested, decode
from eden_memory.schemas.events.base import Event
from eden_memory.settings import KafkaSettings, MongoSettings, Settings
from eden_memory.stages.controls import MongoControls, MongoGroupNotes
from eden_memory.stages.dead_letter_store import DeadLetters
from eden_memory.stages.lanes import Slots
from eden_memory.stages.outcome_store import MongoLedger
from eden_memory.stages.partition_count_store import PartitionCounts
from eden_memory.stages.process import ProcessPart
from eden_memory.stages.publishing import Publisher, new_producer, partition_for
from eden_memory.stages.stage import Delivery, Stage
from eden_memory.stages.worker import Bounds, Surroundings, Worker
from tests.awaiting import until
from tests.names import NAMES

PREFIX, PARTITIONS = "memory_", 3
SOON = 120.0
E = TypeVar("E", bound=Event)
Mongo = AsyncMongoClient[dict[str, Any]]


class OnServers:
    """One test's servers; every worker that it makes stands for a process of its own."""

    def __init__(self, settings: Settings, mongo: Mongo, publisher: Publisher) -> None:
        assert settings.kafka.bootstrap is not None
        self.settings, self.mongo, self.publisher = settings, mongo, publisher
        self.client = client_kwargs(settings.kafka, settings.kafka.bootstrap)
        self.admin = admin_config(settings.kafka, settings.kafka.bootstrap)
        self.database = mongo[settings.mongodb.database]
        self.topics = load_topics(settings.kafka)

    def worker_of(self, stage: Stage, *, readers: str = "", stop_seconds: float = 5.0) -> Worker:
        """A stage, ready to run; `readers` names another consumer group, which reads everything anew."""
        around = Surroundings(
            kafka=self.client,
            topic_of=self.topics.topic_of,
            group_of=lambda name: self.topics.group(name) + readers,
            registry=REGISTRY,
            publisher=self.publisher,
            ledger=MongoLedger(self.database, NAMES),
            notes=MongoGroupNotes(self.database, NAMES),
            controls=MongoControls(self.database, NAMES),
            slots=Slots(100),
            letters=DeadLetters(self.database, NAMES, MongoForgetting(self.database, NAMES)),
            bounds=Bounds(commit_seconds=0.1, stop_seconds=stop_seconds),
        )
        return Worker(stage, around)

    async def letters(self, count: int = 0) -> list[DeadLetter]:
        """All dead letters, once there are at least `count`."""
        rows: list[Any] = []

        async def there() -> bool:
            rows[:] = await self.database[NAMES[DeadLetter.COLLECTION]].find(sort=[("at", 1)]).to_list()
            return len(rows) >= count

        await until(there, f"{count} dead letters")
        return [DeadLetter.model_validate(row, strict=False) for row in rows]

    async def put(self, deliveries: Iterable[Delivery]) -> None:
        """Records as the tailer and the stages publish them."""
        producer: Any = new_producer(self.client)
        await producer.start()
        try:
            sent = [
                await producer.send(
                    self.topics.name(one.topic),
                    key=one.key.encode(),
                    value=None if one.event is None else one.event.json_bytes(),
                    headers=one.envelope.headers(),
                    partition=partition,
                )
                for one in deliveries
                for partition in self.partitions_of(one)
            ]
            for confirmed in sent:
                await confirmed
        finally:
            await producer.stop()

    def partitions_of(self, one: Delivery) -> list[int]:
        """Where a record goes."""
        return [partition_for(one.envelope.ordering_key.encode(), PARTITIONS)]

    @asynccontextmanager
    async def topic(self, *shorts: str) -> AsyncGenerator["Topic"]:
        """Topics of results, from their beginning."""
        names = [self.topics.prefix + one for one in shorts]
        consumer: Any = AIOKafkaConsumer(
            *names, **self.client, auto_offset_reset="earliest", enable_auto_commit=False
        )
        await consumer.start()
        try:
            yield Topic(consumer)
        finally:
            await consumer.stop()


@asynccontextmanager
async def running(
    workers: Iterable[Worker | ProcessPart], drain: float | None = None
) -> AsyncGenerator[None]:
    """Workers that run for the block; what they raise is raised."""
    made = list(workers)
    tasks = [
        asyncio.create_task(one.run(drain) if drain is not None and isinstance(one, Worker) else one.run())
        for one in made
    ]
    try:
        yield
    finally:
        for one in made:
            one.stop()
        await asyncio.gather(*tasks)


class Topic:
    """All that has come on a topic, or on several."""

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
        return [event_of(one) for one in newest.values()]

    def of(self, kind: type[E]) -> list[E]:
        """Events of a kind, each key once."""
        return [event for event in self.events if isinstance(event, kind)]

    def values(self) -> dict[bytes, set[tuple[object, ...]]]:
        """What was ever published under each key: value and headers."""
        found: dict[bytes, set[tuple[object, ...]]] = {}
        for one in self.records:
            key = one.topic.encode() + b" " + one.key
            found.setdefault(key, set()).add((one.value, tuple(one.headers)))
        return found

    @property
    def windows(self) -> list[FormationRequested]:
        return self.of(FormationRequested)

    @property
    def forgotten(self) -> list[Forgotten]:
        return self.of(Forgotten)

    async def until(self, count: int, seconds: float = SOON) -> list[FormationRequested]:
        """Once there are so many different keys: all windows among them."""
        await self.until_true(
            lambda: len({one.key for one in self.records}) >= count, f"{count} keys", seconds
        )
        return self.windows

    async def until_true(self, condition: Callable[[], bool], what: str, seconds: float = SOON) -> None:
        """Read until a condition holds."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"not within {seconds} s: {what}; {len(self.records)} records"
            await self.read()


def event_of(record: Any) -> Event:
    """What a record of Kafka says."""
    envelope = Envelope.of_headers(record.headers)
    return decode(envelope.name, envelope.version, record.value)


K = TypeVar("K", bound=OnServers)


@asynccontextmanager
async def on_servers(
    make: Callable[[Settings, Mongo, Publisher], K], settings: Settings, *, prepare: bool = True
) -> AsyncGenerator[K]:
    """Topics, collections and connections of a test, and what `make` builds on them."""
    settings = settings.model_copy(
        update={"kafka": settings.kafka.model_copy(update={"partitions": PARTITIONS})}
    )
    assert settings.mongodb.uri is not None
    assert settings.kafka.bootstrap is not None
    config = admin_config(settings.kafka, settings.kafka.bootstrap)
    if prepare:
        await asyncio.to_thread(apply_topics, config, load_topics(settings.kafka))
    client = client_kwargs(settings.kafka, settings.kafka.bootstrap)
    async with connect(settings.mongodb.uri.get_secret_value()) as mongo:
        publisher = Publisher(lambda: new_producer(client))
        await publisher.start()
        try:
            made = make(settings, mongo, publisher)
            if prepare:
                await set_up(made.database, NAMES)
                counts = PartitionCounts(made.database, NAMES)
                await TopicsCheck(config, load_topics(settings.kafka), counts).accept()
                await MongoLedger(made.database, NAMES).prepare()
            yield made
        finally:
            await publisher.stop()


def settings_of(mongodb: str, kafka: str, names: tuple[str, str, str]) -> Settings:
    """For a process of its own; `names`: database, topic prefix, group prefix."""
    database, topics, groups = names
    return Settings(
        mongodb=MongoSettings(uri=SecretStr(mongodb), database=database),  # pyright: ignore[reportCallIssue]
        kafka=KafkaSettings(bootstrap=kafka, topic_prefix=topics, group_prefix=groups),  # pyright: ignore[reportCallIssue]
    )
