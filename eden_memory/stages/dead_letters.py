"""Dead letters: the original bytes, key and headers, and beside them, as Kafka Connect does, why."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import blake2b

from aiokafka import TopicPartition

from eden_memory.error_text import describe_with_trace
from eden_memory.kafka import KafkaArguments
from eden_memory.kafka.outgoing import CUT, DEAD, DEAD_HEADERS, LEAST, NULLS, ORIGINAL_KEY
from eden_memory.kafka.record import Record, as_record
from eden_memory.kafka.topic_reading import consuming
from eden_memory.logs import LibraryLogger
from eden_memory.schemas.envelope import rfc3339
from eden_memory.stages.controls import DeadRetry, MongoControls
from eden_memory.stages.dead_letter_ids import LetterIds, named_in
from eden_memory.stages.failure_decisions import Failure
from eden_memory.stages.finished_offsets import AssignedPartition
from eden_memory.stages.lanes import Queued
from eden_memory.stages.outcome import Ledger, StoredRecord

_TEXT = 2_000
_TRACE = 8_000

log = LibraryLogger()
READ_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class DeathCause:
    """Why, where and when a record was given up."""

    stage: str
    group: str
    failure: Failure
    attempts: int
    time: datetime
    retried: int = 0
    """How often the record had been a dead letter that was sent again."""

    def headers(self, record: Record) -> list[tuple[str, str]]:
        """Names (without prefix) and values of the headers that are added."""
        error = self.failure.error
        trace = describe_with_trace(error) if error is not None else ""
        return [
            ("topic", record.topic),
            ("partition", str(record.partition)),
            ("offset", str(record.offset)),
            ("stage", self.stage),
            ("group", self.group),
            ("exception.class.name", _class_name(error)),
            ("exception.message", self.failure.reason[:_TEXT]),
            ("exception.stacktrace", trace[-_TRACE:]),
            ("attempts", str(self.attempts)),
            *([("retried", str(self.retried))] if self.retried else ()),
            ("time", rfc3339(self.time)),
        ]


def _class_name(error: BaseException | None) -> str:
    return "Dead" if error is None else f"{type(error).__module__}.{type(error).__qualname__}"


def dead_topic(topic: str) -> str:
    """Return the topic that takes the dead letters of a topic."""
    return topic + DEAD


def dead_letter(record: Record, cause: DeathCause) -> StoredRecord:
    """The dead letter of a record; headers of an earlier dead-lettering are replaced."""
    original = [(name, value) for name, value in record.headers if not name.startswith(DEAD_HEADERS)]
    added = [(DEAD_HEADERS + name, value.encode(errors="replace")) for name, value in cause.headers(record)]
    nulls = [name for name, part in (("key", record.key), ("value", record.value)) if part is None]
    if record.key is not None:
        added.append((ORIGINAL_KEY, record.key))
    if nulls:
        added.append((NULLS, ",".join(nulls).encode()))
    return StoredRecord(
        dead_topic(record.topic),
        record.ordering_key,
        _key(record, cause.group),
        record.value or b"",
        (*original, *added),
    )


def _key(record: Record, group: str) -> bytes:
    """Return the key of a record's dead letter: where it stood, and whose it is; copies of a letter share it.

    An event that stood nowhere is known by its id.
    """
    stood = record.offset >= 0
    place = f"{record.partition}@{record.offset}" if stood else (event_id_of(record) or record.fingerprint)
    return f"{record.topic}/{place}/{group}".encode()


def unpublished(record: StoredRecord, cause: DeathCause) -> StoredRecord:
    """The dead letter of a stage's own event, which stood nowhere: beside the topic that did not take it."""
    never = Record(record.topic, -1, -1, record.key, record.value, record.headers, 0)
    return replace(dead_letter(never, cause), ordering_key=record.ordering_key)


def ids_of_letter(letter: StoredRecord) -> LetterIds | None:
    """Return what a stage's dead letter names; None for a letter without text, and for a tombstone of one.

    Nothing is named by one that cannot be read.
    """
    if letter.value is None:
        return None
    why = {name: (value or b"").decode(errors="replace") for name, value in letter.headers}
    stage, at = why[DEAD_HEADERS + "stage"], datetime.fromisoformat(why[DEAD_HEADERS + "time"])
    record = original(Record(letter.topic, 0, 0, letter.key, letter.value, letter.headers, 0))
    if not record.value:
        return None
    found = named_in(record.key or b"", record.value, record.headers, at)
    members = tuple(f"{stage}:{name}" for name in known_as(record))
    return None if found is None else LetterIds(letter.topic, letter.key or b"", at, found, members)


def shrunk(letter: StoredRecord) -> StoredRecord | None:
    """A dead letter with half of its bytes, and how many it had; None if nothing is left to leave out."""
    if not letter.value:
        return None
    headers = dict(letter.headers)
    headers.setdefault(CUT, str(len(letter.value)).encode())
    half = letter.value[: len(letter.value) // 2] if len(letter.value) > LEAST else b""
    return replace(letter, value=half, headers=tuple(headers.items()))


def event_id_of(record: Record) -> str | None:
    """Return the event's id, if the record has one."""
    identity = dict(record.headers).get("ce_id")
    return identity.decode(errors="replace") if identity else None


def known_as(record: Record) -> list[str]:
    """The names that a dead record may have in the ledger: its place and bytes if unreadable, else its event's id."""
    identity = event_id_of(record)
    return [record.fingerprint, *([identity] if identity else ())]


def original(record: Record) -> Record:
    """The record that a dead letter holds, where it first stood; a KeyError if the headers do not say so."""
    found = {name: value or b"" for name, value in record.headers if name.startswith(DEAD_HEADERS)}
    nulls = found.get(NULLS, b"").split(b",")
    return Record(
        topic=found[DEAD_HEADERS + "topic"].decode(),
        partition=int(found[DEAD_HEADERS + "partition"]),
        offset=int(found[DEAD_HEADERS + "offset"]),
        key=None if b"key" in nulls else found.get(ORIGINAL_KEY, record.key),
        value=None if b"value" in nulls else record.value,
        headers=tuple(pair for pair in record.headers if not pair[0].startswith(DEAD_HEADERS)),
        timestamp=record.timestamp,
    )


class DeadRetries:
    """Takes the retries asked of one stage whose original partition is held here."""

    def __init__(
        self,
        stage: str,
        kafka: KafkaArguments,
        controls: MongoControls,
        ledger: Ledger,
        queue: Callable[[Queued], None],
    ) -> None:
        self._stage = stage
        self._kafka = kafka
        self._controls = controls
        self._ledger = ledger
        self._queue = queue
        self._items: dict[Queued, DeadRetry] = {}
        self._under_way: dict[str, tuple[DeadRetry, AssignedPartition]] = {}

    async def look(self, homes: Mapping[TopicPartition, AssignedPartition]) -> None:
        """Queue what is asked for and not under way in the current assignment; what fails is raised at the end."""
        self._items = {item: asked for item, asked in self._items.items() if not item.home.revoked}
        failed: Exception | None = None
        for asked in await self._controls.dead_retries():
            home = homes.get(TopicPartition(asked.topic, asked.partition))
            if asked.stage != self._stage or home is None or home.revoked or self._has(asked, home):
                continue
            self._under_way[asked.id] = (asked, home)
            try:
                await self._take(asked, home)
            except BaseException as error:
                self._under_way.pop(asked.id, None)
                if not isinstance(error, Exception):
                    raise
                failed = error
        if failed is not None:
            raise failed

    def _has(self, asked: DeadRetry, home: AssignedPartition) -> bool:
        under_way = self._under_way.get(asked.id)
        return under_way is not None and under_way[0].times == asked.times and under_way[1] is home

    async def finished(self, item: Queued, *, dead: bool) -> None:
        """Note how a retry ended; if its partition has moved nothing is published, and the next holder goes on."""
        asked = self._items.pop(item, None)
        if asked is not None and not item.home.revoked:
            self._under_way.pop(asked.id, None)
            await self._ledger.settled(self._stage, known_as(item.record), asked.dead_topic)
            await self._controls.dead_retry_done(asked, "dead again" if dead else "published")

    async def _take(self, asked: DeadRetry, home: AssignedPartition) -> None:
        tp = TopicPartition(asked.dead_topic, asked.dead_partition)
        letter = await read_at(self._kafka, tp, asked.dead_offset)
        record = None if letter is None else _original(letter)
        if record is None:
            log.error("dead letter is gone", stage=self._stage, id=asked.id)
            await self._controls.dead_retry_done(asked, "gone")
        elif not home.revoked:
            item = Queued(record, home, record.size, retry=_number(asked), times=asked.times)
            self._items[item] = asked
            self._queue(item)


def _original(letter: Record) -> Record | None:
    """Return the record of a dead letter; None if something else stands there, as after a topic was made anew."""
    try:
        return original(letter)
    except (KeyError, ValueError):
        return None


def _number(asked: DeadRetry) -> int:
    """A number of this retry alone, different also from those of dead letters that earlier retries left."""
    return int.from_bytes(blake2b(f"{asked.id}#{asked.times}".encode(), digest_size=6).digest()) or 1


async def read_at(kafka: KafkaArguments, tp: TopicPartition, offset: int) -> Record | None:
    """One record by its offset; None if the broker does not hold it any more, a TimeoutError if it does not say."""
    async with consuming(kafka, [tp]) as consumer:
        first, end = (await consumer.beginning_offsets([tp]))[tp], (await consumer.end_offsets([tp]))[tp]
        if not first <= offset < end:
            return None
        consumer.seek(tp, offset)
        fetched = await consumer.getmany(tp, timeout_ms=int(READ_SECONDS * 1000), max_records=1)
    for record in fetched.get(tp, []):
        return as_record(record) if record.offset == offset else None
    raise TimeoutError(f"{tp.topic}/{tp.partition}@{offset} was not read in {READ_SECONDS} s")
