"""A stage of its own to run on real servers: questions in, answers out, and everything counted."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from pymongo import AsyncMongoClient

from eden_memory.forgetting.mark_store import MongoForgetting
from eden_memory.kafka.connection import admin_config, client_kwargs
from eden_memory.kafka.record import Record
from eden_memory.kafka.topic_reading import partitions_asked
from eden_memory.mongo.client import connect
from eden_memory.schemas.documents import DeadLetter
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events.base import Event
from eden_memory.schemas.registry import Registry
from eden_memory.settings import Settings
from eden_memory.stages.controls import MongoControls, MongoGroupNotes
from eden_memory.stages.dead_letter_store import DeadLetters
from eden_memory.stages.lanes import Slots
from eden_memory.stages.outcome import StoredRecord
from eden_memory.stages.outcome_store import MongoLedger
from eden_memory.stages.publishing import Publisher, new_producer
from eden_memory.stages.stage import Delivery, Emitted, Handler, RetryPolicy, Stage
from eden_memory.stages.worker import Bounds, Surroundings, Worker
from tests.awaiting import SOON, until

PARTITIONS = 6
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
QUICK = RetryPolicy(first=0.02, cap=0.1, attempts=4)


class Asked(Event):
    """A question of a session, with its place in it."""

    session: str
    number: int

    def key(self) -> str:
        return f"{self.session}-{self.number}"

    def ordering_key(self) -> str:
        return self.session

    def subject(self) -> str:
        return self.key()


class Answered(Asked):
    """What was decided about a question."""

    text: str


class Unanswered(Asked):
    """Stands in place of an answer that could not be given."""


REGISTRY = Registry((Asked, Answered, Unanswered), {})


def asked(session: str, number: int) -> StoredRecord:
    """A question as a record of no topic yet."""
    event = Asked(session=session, number=number)
    envelope = Envelope(
        id=f"{session}-{number}",
        name="Asked",
        version=1,
        source="test",
        time=NOON,
        subject=event.subject(),
        ordering_key=session,
    )
    return StoredRecord(
        "", session.encode(), event.key().encode(), event.json_bytes(), tuple(envelope.headers())
    )


def questions(sessions: int, each: int) -> list[StoredRecord]:
    """The first question of every session, then the second, and so on."""
    return [asked(f"s{session}", number) for number in range(each) for session in range(sessions)]


async def answer(deliveries: Sequence[Delivery]) -> list[Emitted]:
    """Answers at once."""
    return [answered(one) for one in deliveries]


def answered(one: Delivery, text: str = "yes") -> Answered:
    """The answer to one question."""
    assert isinstance(one.event, Asked)
    return Answered(session=one.event.session, number=one.event.number, text=text)


def stage(handler: Handler = answer, **fields: Any) -> Stage:
    """A stage `answering` that reads questions."""
    return replace(
        Stage("answering", handler, reads=(Asked,), writes=(Answered, Unanswered), retry=QUICK), **fields
    )


@dataclass
class Bench:
    """Topics, connections and what the stage's surroundings are."""

    settings: Settings
    mongo: AsyncMongoClient[dict[str, Any]]
    client: dict[str, Any]
    publisher: Publisher
    ledger: MongoLedger
    controls: MongoControls
    notes: MongoGroupNotes

    @property
    def database(self) -> Any:
        return self.mongo[self.settings.mongodb.database]

    @property
    def admin(self) -> dict[str, Any]:
        assert self.settings.kafka.bootstrap is not None
        return admin_config(self.settings.kafka, self.settings.kafka.bootstrap)

    def topic(self, event: type[Event]) -> str:
        return self.settings.kafka.topic_prefix + ("in" if event is Asked else "out")

    @property
    def letters(self) -> DeadLetters:
        names = self.settings.names
        return DeadLetters(self.database, names, MongoForgetting(self.database, names))

    async def dead(self, count: int, seconds: float = SOON) -> list[DeadLetter]:
        """All dead letters, whole and oldest first, once there are at least `count`."""
        rows: list[Any] = []

        async def there() -> bool:
            rows[:] = await self.database.memory_dead_letters.find(sort=[("at", 1), ("offset", 1)]).to_list()
            return len(rows) >= count

        await until(there, f"{count} dead letters", seconds)
        return [DeadLetter.model_validate(row, strict=False) for row in rows]

    @property
    def group(self) -> str:
        return self.settings.kafka.group_prefix + "answering"

    def around(self, **fields: Any) -> Surroundings:
        """What a process gives its stages; each call stands for a process of its own."""
        around = Surroundings(
            kafka=self.client,
            topic_of=self.topic,
            group_of=lambda name: self.settings.kafka.group_prefix + name,
            registry=REGISTRY,
            publisher=self.publisher,
            ledger=self.ledger,
            notes=self.notes,
            controls=self.controls,
            slots=Slots(1_000),
            letters=self.letters,
            bounds=Bounds(commit_seconds=0.1),
        )
        return replace(around, **fields)

    def under(self, group: str) -> Surroundings:
        """Surroundings of a stage that reads with a group of its own."""

        def group_of(stage_name: str) -> str:
            return f"{self.settings.kafka.group_prefix}{stage_name}-{group}"

        return self.around(group_of=group_of)

    async def put(self, records: Sequence[StoredRecord]) -> None:
        """Publish to the stage's input."""
        await self.publisher.publish([replace(one, topic=self.topic(Asked)) for one in records])

    async def read(self, topic: str, count: int, seconds: float = SOON) -> list[Record]:
        """The topic's records from its beginning, once there are at least `count`."""
        records: list[Record] = []
        async with consuming(self.client, topic) as consumer:
            until = time.monotonic() + seconds
            while len(records) < count:
                assert time.monotonic() < until, f"{len(records)} of {count} records in {topic}"
                for batch in (await consumer.getmany(timeout_ms=100)).values():
                    records += [_record(one) for one in batch]
        return records

    async def answers(self, count: int, seconds: float = SOON) -> list[Record]:
        """Once there are `count` different answers: all of them, repeats included."""
        seen: list[Record] = []
        async with consuming(self.client, self.topic(Answered)) as consumer:
            until = time.monotonic() + seconds
            while len({one.key for one in seen}) < count:
                assert time.monotonic() < until, f"{len({one.key for one in seen})} of {count} answers"
                for batch in (await consumer.getmany(timeout_ms=100)).values():
                    seen += [_record(one) for one in batch]
        return seen

    async def committed(self) -> int:
        """The sum of the group's committed offsets on its input."""
        admin: Any = AIOKafkaAdminClient(**self.client)
        await admin.start()
        try:
            found = await admin.list_consumer_group_offsets(self.group)
        finally:
            await admin.close()
        return sum(meta.offset for meta in found.values())


def _record(one: Any) -> Record:
    return Record(one.topic, one.partition, one.offset, one.key, one.value, tuple(one.headers), one.timestamp)


@asynccontextmanager
async def consuming(client: dict[str, Any], topic: str) -> AsyncGenerator[Any]:
    """A consumer without a group, from the topic's beginning."""
    consumer: Any = AIOKafkaConsumer(topic, **client, auto_offset_reset="earliest", enable_auto_commit=False)
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


@asynccontextmanager
async def bench(settings: Settings, partitions: int = PARTITIONS) -> AsyncGenerator[Bench]:
    """Topics and indexes of one test."""
    assert settings.mongodb.uri is not None
    assert settings.kafka.bootstrap is not None
    client = client_kwargs(settings.kafka, settings.kafka.bootstrap)
    await make_topics(client, settings.kafka.topic_prefix, {"in": partitions, "out": partitions})
    mongo = connect(settings.mongodb.uri.get_secret_value())
    database = mongo[settings.mongodb.database]
    prefix = settings.names
    ledger = MongoLedger(database, prefix)
    publisher = Publisher(lambda: new_producer(client))
    try:
        await ledger.prepare()
        await publisher.start()
        controls, notes = MongoControls(database, prefix), MongoGroupNotes(database, prefix)
        made = Bench(settings, mongo, client, publisher, ledger, controls, notes)
        await made.letters.prepare()
        yield made
    finally:
        await publisher.stop()
        await mongo.close()


async def make_topics(client: dict[str, Any], prefix: str, wanted: Mapping[str, int]) -> None:
    """Topics and their partitions, once the broker tells of them: on a busy machine it answers before that."""
    admin: Any = AIOKafkaAdminClient(**client)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(prefix + name, count, 1) for name, count in wanted.items()])
        names = [prefix + name for name in wanted]

        async def there() -> bool:
            return len(await partitions_asked(client, names)) >= sum(wanted.values())

        await until(there, f"{names} are there")
    finally:
        await admin.close()


@asynccontextmanager
async def running(*workers: Worker, deadline: float = 10.0) -> AsyncGenerator[list[asyncio.Task[None]]]:
    """Workers that run inside the block and are stopped after it; what they raise comes before what it raises."""
    tasks = [asyncio.create_task(worker.run(deadline)) for worker in workers]
    try:
        yield tasks
    finally:
        for worker in workers:
            worker.stop()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result


def in_order(records: Sequence[Record]) -> bool:
    """Whether the first arrival of each key came in the order of its session."""
    last: dict[str, int] = defaultdict(lambda: -1)
    seen: set[bytes | None] = set()
    for record in records:
        if record.key in seen:
            continue
        seen.add(record.key)
        session, number = (record.key or b"").decode().rsplit("-", 1)
        if int(number) != last[session] + 1:
            return False
        last[session] = int(number)
    return True
