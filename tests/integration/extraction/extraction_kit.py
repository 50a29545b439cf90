"""Both extractions on real servers: windows in MongoDB, requests in, what they publish out."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer
from pydantic import SecretStr

from eden_memory.domain.outcome import StoredRecord
from eden_memory.domain.stage import Stage
from eden_memory.domain.windows.window_request import StoredWindow
from eden_memory.domain.windows.windows import Limits
from eden_memory.mongo.client import connect
from eden_memory.mongo.controls import MongoControls, MongoGroupNotes
from eden_memory.mongo.memory.forgotten import MongoForgetting
from eden_memory.mongo.memory.snapshots import MongoSnapshots
from eden_memory.mongo.memory.streams import MongoStreams
from eden_memory.mongo.outcomes import MongoLedger
from eden_memory.mongo.trigger.trigger_documents import window_row
from eden_memory.mongo.trigger.trigger_store import MongoTriggerStore
from eden_memory.ports import LanguageModel
from eden_memory.runtime.contract.topic_admin import apply_topics
from eden_memory.runtime.contract.topics import load_topics
from eden_memory.runtime.kafka import admin_config, client_kwargs
from eden_memory.runtime.stages.accounting import accounted
from eden_memory.runtime.stages.publishing import Publisher, new_producer
from eden_memory.runtime.stages.slots import Slots
from eden_memory.runtime.stages.worker import Bounds, Surroundings, Worker
from eden_memory.settings import KafkaSettings, MongoSettings, Settings
from processors import pipeline
from processors.fact_extraction import FactExtraction
from processors.reflection_extraction import ReflectionExtraction
from schemas.envelope import Envelope
from schemas.events import REGISTRY, FormationRequested, decode
from schemas.events.base import Event
from tests.unit.extraction.windows import FENCE, Counted, Talk, talk

E = TypeVar("E", bound=Event)
SOON = 60.0
OUT = ("memory.extractions", "memory.candidates", "memory.reflections", "memory.formations.dead")


def window(number: int, *texts: str, **fields: Any) -> StoredWindow:
    """The one window of session `s.talk<number>`."""
    told: Talk = talk(*texts, **fields)
    session = f"s.talk{number}"
    asked = told.requested.model_copy(update={"formation_id": f"{session}/1-aa", "session_id": session})
    stored = told.stored
    stored.formation_id, stored.session_id, stored.requested = asked.formation_id, session, asked
    return stored


def requested(one: StoredWindow) -> StoredRecord:
    """As formation-trigger publishes it."""
    event = one.requested
    assert event is not None
    envelope = Envelope(
        id=f"formation/{one.formation_id}",
        name=event.NAME,
        version=1,
        source="formation-trigger",
        time=event.closed_at,
        subject=event.subject(),
        ordering_key=event.ordering_key(),
    )
    ordering = event.ordering_key().encode()
    return StoredRecord("", ordering, event.key().encode(), event.json_bytes(), tuple(envelope.headers()))


class Kit:
    """Servers of one test, and both stages."""

    def __init__(self, settings: Settings, mongo: Any, publisher: Publisher, client: dict[str, Any]) -> None:
        self.settings, self._publisher, self._client = settings, publisher, client
        self.database = mongo[settings.mongodb.database]
        self._topics = load_topics(settings.kafka)

    async def close_windows(self, windows: Sequence[StoredWindow], *, keep_texts: bool = True) -> None:
        """Store the windows and ask for their formation."""
        if keep_texts:
            await self.database["memory_windows"].insert_many([window_row(one) for one in windows])
        await self.ask_for(windows)

    async def ask_for(self, windows: Sequence[StoredWindow]) -> None:
        """Publish the requests, again if need be."""
        topic = self._topics.topic_of(FormationRequested)
        await self._publisher.publish([replace(requested(one), topic=topic) for one in windows])

    def stages(self, model: LanguageModel) -> list[Stage]:
        """Both, as a process has them."""
        prefix, counted = self.settings.mongodb.prefix, Counted()
        forgetting = MongoForgetting(self.database, prefix)
        windows = MongoTriggerStore(self.database, prefix, Limits())
        streams, shots = MongoStreams(self.database, prefix), MongoSnapshots(self.database, prefix)
        facts = FactExtraction(windows, streams, model, forgetting, FENCE, counted)
        reflections = ReflectionExtraction(windows, streams, shots, model, forgetting, FENCE, counted)
        handlers = {
            pipeline.FACT_EXTRACTION: accounted(facts, _ignored),
            pipeline.REFLECTION_EXTRACTION: accounted(reflections, _ignored),
        }
        return list(pipeline.stages(handlers))

    async def workers(self, model: LanguageModel) -> list[Worker]:
        """Both stages, ready to run."""
        prefix = self.settings.mongodb.prefix
        ledger = MongoLedger(self.database, prefix)
        await ledger.prepare()
        around = Surroundings(
            client=self._client,
            topic_of=self._topics.topic_of,
            group_of=self._topics.group,
            registry=REGISTRY,
            publisher=self._publisher,
            ledger=ledger,
            notes=MongoGroupNotes(self.database, prefix),
            controls=MongoControls(self.database, prefix),
            slots=Slots(100),
            bounds=Bounds(commit_seconds=0.1, stop_seconds=5.0),
        )
        return [Worker(stage, around) for stage in self.stages(model)]

    @asynccontextmanager
    async def running(self, model: LanguageModel) -> AsyncGenerator[None]:
        """Both stages in this process, for the block; what they raise is raised."""
        workers = await self.workers(model)
        tasks = [asyncio.create_task(worker.run()) for worker in workers]
        try:
            yield
        finally:
            for worker in workers:
                worker.stop()
            await asyncio.gather(*tasks)

    @asynccontextmanager
    async def published(self) -> AsyncGenerator["Published"]:
        """All that the stages publish, from the beginning."""
        names = [self._topics.prefix + one for one in OUT]
        consumer: Any = AIOKafkaConsumer(
            *names, **self._client, auto_offset_reset="earliest", enable_auto_commit=False
        )
        await consumer.start()
        try:
            yield Published(consumer)
        finally:
            await consumer.stop()


class Published:
    """Every record that has come."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self.records: list[Any] = []

    def of(self, kind: type[E]) -> list[E]:
        """Events of a kind, each key once."""
        newest = {one.key: one for one in self.records if not one.topic.endswith(".dead")}
        return [event for one in newest.values() if isinstance(event := _event(one), kind)]

    def values(self) -> dict[bytes, set[tuple[object, ...]]]:
        """What was ever published under each key: value and headers."""
        found: dict[bytes, set[tuple[object, ...]]] = {}
        for one in self.records:
            if not one.topic.endswith(".dead"):
                found.setdefault(one.topic.encode() + b" " + one.key, set()).add(
                    (one.value, tuple(one.headers))
                )
        return found

    @property
    def dead(self) -> list[Any]:
        return [one for one in self.records if one.topic.endswith(".dead")]

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Read until a condition holds."""
        end = time.monotonic() + SOON
        while not condition():
            assert time.monotonic() < end, f"not within {SOON} s: {what}; {len(self.records)} records"
            await self.read()

    async def read(self) -> None:
        """What has come since."""
        for batch in (await self._consumer.getmany(timeout_ms=100)).values():
            self.records += batch


def _event(record: Any) -> Event:
    envelope = Envelope.of_headers(record.headers)
    return decode(envelope.name, envelope.version, record.value)


def _ignored(calls: object) -> None:
    """Nothing is accounted here."""


@asynccontextmanager
async def kit_for(settings: Settings, *, make_topics: bool = True) -> AsyncGenerator[Kit]:
    """Topics of a test, and connections."""
    settings = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"partitions": 3})})
    assert settings.mongodb.uri is not None
    assert settings.kafka.bootstrap is not None
    if make_topics:
        config = admin_config(settings.kafka, settings.kafka.bootstrap)
        await asyncio.to_thread(apply_topics, config, load_topics(settings.kafka))
    mongo = connect(settings.mongodb, settings.mongodb.uri.get_secret_value())
    client = client_kwargs(settings.kafka, settings.kafka.bootstrap)
    publisher = Publisher(lambda: new_producer(client))
    await publisher.start()
    try:
        yield Kit(settings, mongo, publisher, client)
    finally:
        await publisher.stop()
        await mongo.close()


async def run_process(mongodb: str, kafka: str, names: tuple[str, str, str], model: LanguageModel) -> None:
    """Both stages until the process is killed; `names`: database, topic prefix, group prefix."""
    database, topics, groups = names
    settings = Settings(
        mongodb=MongoSettings(uri=SecretStr(mongodb), database=database),  # pyright: ignore[reportCallIssue]
        kafka=KafkaSettings(bootstrap=kafka, topic_prefix=topics, group_prefix=groups),  # pyright: ignore[reportCallIssue]
    )
    async with kit_for(settings, make_topics=False) as kit:
        workers = await kit.workers(model)
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*(worker.run() for worker in workers))
