"""Dead letters as people look at them: read off their topics, filtered, with what became of them."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from eden_memory.domain.control import DeadRetry
from eden_memory.domain.source.records import DEAD_HEADERS
from eden_memory.runtime.dead.dead_letters import dead_topic, known_as, original
from eden_memory.runtime.dead.dead_retries import as_record
from eden_memory.runtime.partitions import partitions_of
from eden_memory.runtime.stages.records import Record

POLL_MS = 1_000


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One dead letter; `why` holds the headers that say why, without their prefix."""

    record: Record
    why: dict[str, str]

    @property
    def id(self) -> str:
        """Where it is: `topic/partition@offset` of the dead letter."""
        return f"{self.record.topic}/{self.record.partition}@{self.record.offset}"

    @property
    def stage(self) -> str:
        """The stage that gave it up."""
        return self.why.get("stage", "")

    @property
    def member(self) -> str | None:
        """What the ledger knows its record by; None if it could not even be read."""
        identity = dict(self.record.headers).get("ce_id")
        return f"{self.stage}:{identity.decode(errors='replace')}" if identity and self.stage else None

    @property
    def known_as(self) -> list[str]:
        """What the ledger may know its record by; nothing if it did not come from a stage."""
        return [] if self.retry() is None else known_as(original(self.record))

    @property
    def copy(self) -> tuple[str, ...] | None:
        """The same for all copies of one letter: a crash after publishing publishes it again."""
        told = tuple(self.why.get(name, "") for name in ("stage", "topic", "partition", "offset", "time"))
        return told if all(told) else None

    @property
    def reason(self) -> str:
        """Why, in one line."""
        return self.why.get("exception.message", "").partition("\n")[0]

    @property
    def at(self) -> datetime:
        """When: by the stage's clock, else the broker's."""
        if "time" in self.why:
            return datetime.fromisoformat(self.why["time"])
        return datetime.fromtimestamp(self.record.timestamp / 1000, UTC)

    def retry(self) -> DeadRetry | None:
        """The request to try it again; None if it did not come from a stage."""
        if not {"stage", "group", "topic", "partition", "offset"} <= set(self.why):
            return None
        return DeadRetry(
            id=self.id,
            stage=self.stage,
            topic=self.why["topic"],
            partition=int(self.why["partition"]),
            dead_topic=self.record.topic,
            dead_partition=self.record.partition,
            dead_offset=self.record.offset,
            times=0,
        )


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which dead letters; None: all."""

    topic: str | None = None
    """The topic that they came from, whole name."""
    stage: str | None = None
    reason: str | None = None
    """Part of the reason, upper and lower case alike."""
    since: datetime | None = None
    until: datetime | None = None

    def matches(self, letter: DeadLetter) -> bool:
        """Whether a dead letter is one of them."""
        return (
            (self.topic is None or letter.record.topic == dead_topic(self.topic))
            and (self.stage is None or letter.stage == self.stage)
            and (self.reason is None or self.reason.casefold() in letter.reason.casefold())
            and (self.since is None or letter.at >= self.since)
            and (self.until is None or letter.at < self.until)
        )


def dead_letter_of(record: Record) -> DeadLetter:
    """A record of a dead-letter topic, with its reasons told apart."""
    pairs = ((name, value) for name, value in record.headers if name.startswith(DEAD_HEADERS))
    return DeadLetter(
        record,
        {name.removeprefix(DEAD_HEADERS): (value or b"").decode(errors="replace") for name, value in pairs},
    )


async def dead_letters(
    client: dict[str, Any], topics: Sequence[str], wanted: Wanted
) -> AsyncIterator[DeadLetter]:
    """The dead letters that the broker holds now, oldest first per topic; topics that do not exist are empty.

    Of several copies of one letter the first.
    """
    seen: set[tuple[str, ...]] = set()
    admin: Any = AIOKafkaAdminClient(**client)
    consumer: Any = AIOKafkaConsumer(**client, enable_auto_commit=False, auto_offset_reset="earliest")
    try:
        await admin.start()
        await consumer.start()
        for tp in await partitions_of(admin, topics):
            async for record in _whole(consumer, tp):
                letter = dead_letter_of(record)
                again = letter.copy in seen
                if letter.copy is not None:
                    seen.add(letter.copy)
                if not again and wanted.matches(letter):
                    yield letter
    finally:
        await consumer.stop()
        await admin.close()


async def _whole(consumer: Any, tp: TopicPartition) -> AsyncIterator[Record]:
    consumer.assign([tp])
    end = (await consumer.end_offsets([tp]))[tp]
    position = (await consumer.beginning_offsets([tp]))[tp]
    consumer.seek(tp, position)
    while position < end:
        fetched = (await consumer.getmany(tp, timeout_ms=POLL_MS)).get(tp, [])
        for one in fetched:
            if one.offset < end:
                yield as_record(one)
        position = await consumer.position(tp)
