"""atlas-writer as a stage on real servers: records into the memory topics, documents and announcements out."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from aiokafka import AIOKafkaConsumer
from pymongo import AsyncMongoClient

from eden_memory.domain.stage import Delivery, RetryPolicy, Stage
from eden_memory.mongo.client import connect
from eden_memory.mongo.controls import MongoControls, MongoGroupNotes
from eden_memory.mongo.memory.forgotten import MongoForgetting
from eden_memory.mongo.memory.memory_store import MongoMemoryStore
from eden_memory.mongo.outcomes import MongoLedger
from eden_memory.mongo.setup.setup import set_up
from eden_memory.runtime.contract.topic_admin import apply_topics
from eden_memory.runtime.contract.topics import load_topics
from eden_memory.runtime.kafka import admin_config, client_kwargs
from eden_memory.runtime.stages.publishing import Publisher, new_producer, partition_for
from eden_memory.runtime.stages.slots import Slots
from eden_memory.runtime.stages.worker import Bounds, Surroundings, Worker
from eden_memory.settings import Settings
from processors import pipeline
from processors.atlas_writer import AtlasWriter
from schemas.events import REGISTRY, FactCommanded, ScopeChanged
from tests.integration.formation_trigger.harness import Topic
from tests.integration.writer.writer_kit import PREFIX, Database

PARTITIONS = 3


class StageKit:
    """Both sides of the stage; every worker that it makes stands for a process of its own."""

    def __init__(
        self, settings: Settings, mongo: AsyncMongoClient[dict[str, Any]], publisher: Publisher
    ) -> None:
        self.settings, self.publisher = settings, publisher
        assert settings.kafka.bootstrap is not None
        self.client = client_kwargs(settings.kafka, settings.kafka.bootstrap)
        self.database: Database = mongo[settings.mongodb.database]
        self.topics = load_topics(settings.kafka)

    def worker(self, readers: str = "", **stage: Any) -> Worker:
        """The stage; `readers` names another consumer group, which reads everything anew."""
        around = Surroundings(
            client=self.client,
            topic_of=self.topics.topic_of,
            group_of=lambda name: self.topics.group(name) + readers,
            registry=REGISTRY,
            publisher=self.publisher,
            ledger=MongoLedger(self.database, PREFIX),
            notes=MongoGroupNotes(self.database, PREFIX),
            controls=MongoControls(self.database, PREFIX),
            slots=Slots(100),
            bounds=Bounds(commit_seconds=0.1),
        )
        return Worker(self.stage(**stage), around)

    def stage(self, **fields: Any) -> Stage:
        writer = AtlasWriter(MongoMemoryStore(self.database, PREFIX), MongoForgetting(self.database, PREFIX))
        (row,) = pipeline.stages({pipeline.ATLAS_WRITER: writer})
        return replace(row, retry=RetryPolicy(first=0.02, cap=0.1, attempts=3), dead_share=1.0, **fields)

    @asynccontextmanager
    async def running(self, *workers: Worker) -> AsyncGenerator[None]:
        """Workers that run for the block; what they raise is raised."""
        tasks = [asyncio.create_task(one.run(10.0)) for one in workers]
        try:
            yield
        finally:
            for one in workers:
                one.stop()
            await asyncio.gather(*tasks)

    async def put(self, deliveries: Iterable[Delivery]) -> None:
        """Records as their stages publish them."""
        prefix = self.settings.kafka.topic_prefix
        producer: Any = new_producer(self.client)
        await producer.start()
        try:
            sent = [
                await producer.send(
                    prefix + one.topic,
                    key=one.key.encode(),
                    value=None if one.event is None else one.event.json_bytes(),
                    headers=one.envelope.headers(),
                    partition=partition_for(one.envelope.ordering_key.encode(), PARTITIONS),
                )
                for one in deliveries
            ]
            for confirmed in sent:
                await confirmed
        finally:
            await producer.stop()

    @asynccontextmanager
    async def topic(self, short: str) -> AsyncGenerator[Topic]:
        """A topic of results, from its beginning."""
        name = self.settings.kafka.topic_prefix + short
        consumer: Any = AIOKafkaConsumer(name, **self.client, auto_offset_reset="earliest")
        await consumer.start()
        try:
            yield Topic(consumer)
        finally:
            await consumer.stop()


def changes(topic: Topic) -> list[ScopeChanged]:
    """Everything that was announced, repeats included."""
    found = [_value(ScopeChanged, one) for one in topic.records]
    return [one for one in found if isinstance(one, ScopeChanged)]


def commands(topic: Topic) -> list[FactCommanded]:
    found = [_value(FactCommanded, one) for one in topic.records]
    return [one for one in found if isinstance(one, FactCommanded)]


def _value(kind: type[Any], record: Any) -> Any:
    return kind.model_validate_json(record.value)


@asynccontextmanager
async def stage_kit(settings: Settings, *, prepare: bool = True) -> AsyncGenerator[StageKit]:
    """Topics, collections and connections."""
    settings = settings.model_copy(
        update={"kafka": settings.kafka.model_copy(update={"partitions": PARTITIONS})}
    )
    assert settings.mongodb.uri is not None
    assert settings.kafka.bootstrap is not None
    if prepare:
        config = admin_config(settings.kafka, settings.kafka.bootstrap)
        await asyncio.to_thread(apply_topics, config, load_topics(settings.kafka))
    client = client_kwargs(settings.kafka, settings.kafka.bootstrap)
    async with connect(settings.mongodb, settings.mongodb.uri.get_secret_value()) as mongo:
        publisher = Publisher(lambda: new_producer(client))
        await publisher.start()
        try:
            kit = StageKit(settings, mongo, publisher)
            if prepare:
                await set_up(kit.database, PREFIX)
            yield kit
        finally:
            await publisher.stop()
