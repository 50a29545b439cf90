"""Dead letters as people look at them: read off their topics, filtered, with what became of them."""

import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from aiokafka import TopicPartition

from eden_memory.kafka import KafkaArguments
from eden_memory.kafka.outgoing import CUT, DEAD_HEADERS, ENDED, ORIGINAL_KEY
from eden_memory.kafka.record import Record
from eden_memory.kafka.topic_reading import STILL_SECONDS, partitions_asked, reading_partitions
from eden_memory.stages.controls import DeadRetry
from eden_memory.stages.dead_letter_ids import letter_id
from eden_memory.stages.dead_letters import dead_topic, known_as, original, read_at
from eden_memory.stages.outcome import StoredRecord

ID = re.compile(r"(.+)/(\d+)@(\d+)")
OnProgress = Callable[[int, int], None]
"""(records read, records in all)."""


def no_progress(_done: int, _total: int) -> None:
    """Reports nothing."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One dead letter; `why` holds the headers that say why, without their prefix."""

    record: Record
    why: dict[str, str]

    @property
    def id(self) -> str:
        """Its place: `topic/partition@offset` of the dead letter."""
        return f"{self.record.topic}/{self.record.partition}@{self.record.offset}"

    @property
    def key(self) -> bytes:
        """The original's key; empty if it had none."""
        return dict(self.record.headers).get(ORIGINAL_KEY) or self.record.key or b""

    @property
    def noted_as(self) -> str:
        """Its id in the index of dead letters."""
        return letter_id(self.record.topic, self.record.key or b"")

    @property
    def stage(self) -> str:
        """The stage that gave it up."""
        return self.why.get("stage", "")

    @property
    def member(self) -> str | None:
        """The name of its record in the ledger; None if it could not even be read."""
        identity = dict(self.record.headers).get("ce_id")
        return f"{self.stage}:{identity.decode(errors='replace')}" if identity and self.stage else None

    @property
    def known_as(self) -> list[str]:
        """The names that its record may have in the ledger; none if it did not come from a stage."""
        return [] if self.retry() is None else known_as(original(self.record))

    @property
    def copy(self) -> tuple[str, ...] | None:
        """A key that all copies of a letter share: a crash after publishing publishes it again.

        What the tailer refuses has no place in a topic: there the key tells one document from another.
        """
        told = tuple(self.why.get(name, "") for name in ("stage", "topic", "partition", "offset", "time"))
        return (*told, (self.record.key or b"").decode(errors="replace")) if all(told) else None

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

    @property
    def was_refused(self) -> bool:
        """Whether it holds a stage's own event, which the broker did not take."""
        return "group" in self.why and self.why.get("partition") == "-1"

    def event(self) -> StoredRecord | None:
        """The event of a stage that the broker did not take; None if only a part of it is left."""
        if not self.was_refused or CUT in dict(self.record.headers):
            return None
        record = original(self.record)
        return StoredRecord(record.topic, record.ordering_key, record.key, record.value, record.headers)

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
            times=int(self.why.get("retried", 0)),
        )


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
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


def is_ended(record: Record) -> bool:
    """Return whether a record of a dead-letter topic is the tombstone of a letter."""
    return record.value is None and any(name == ENDED for name, _ in record.headers)


def dead_letter_of(record: Record) -> DeadLetter:
    """A record of a dead-letter topic, with its reasons told apart."""
    pairs = ((name, value) for name, value in record.headers if name.startswith(DEAD_HEADERS))
    return DeadLetter(
        record,
        {name.removeprefix(DEAD_HEADERS): (value or b"").decode(errors="replace") for name, value in pairs},
    )


async def dead_letters(
    kafka: KafkaArguments,
    topics: Sequence[str],
    wanted: DeadLetterFilter,
    on_progress: OnProgress = no_progress,
) -> AsyncIterator[DeadLetter]:
    """The dead letters that the broker holds now, oldest first per topic; topics that do not exist are empty.

    Of several copies of one letter the first. EdenError where the broker stops answering.
    """
    seen: set[tuple[str, ...]] = set()
    async for record in _records(kafka, topics, on_progress):
        if is_ended(record):
            continue
        letter = dead_letter_of(record)
        again = letter.copy in seen
        if letter.copy is not None:
            seen.add(letter.copy)
        if not again and wanted.matches(letter):
            yield letter


async def dead_letter_at(kafka: KafkaArguments, topics: Sequence[str], name: str) -> DeadLetter | None:
    """The dead letter of this id; None if these topics hold none. Only its record is read."""
    place = ID.fullmatch(name)
    if place is None or place[1] not in topics:
        return None
    tp = TopicPartition(place[1], int(place[2]))
    if tp not in await partitions_asked(kafka, [tp.topic]):
        return None
    record = await read_at(kafka, tp, int(place[3]))
    return None if record is None or is_ended(record) else dead_letter_of(record)


async def _records(
    kafka: KafkaArguments, topics: Sequence[str], on_progress: OnProgress
) -> AsyncIterator[Record]:
    """All records of these topics, one partition after the other."""
    partitions = await partitions_asked(kafka, topics)
    if not partitions:
        return
    async with reading_partitions(kafka, partitions) as reader:
        total, done = sum(reader.ends.values()) - sum(reader.begins.values()), 0
        for tp in partitions:
            async for batch in reader.batches(tp, patience=STILL_SECONDS):
                for record in batch:
                    done += 1
                    on_progress(done, total)
                    yield record
