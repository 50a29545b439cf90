"""Publish the tailer's records to Kafka in order, and save its position in the order in which things become final.

Each start of a publisher shuts out every older one (kafka/fencing.py, invariant one-leader). After any error the
publisher is of no more use: close it, start another, and go on from the last position that was saved.

marks of what is to be forgotten → records → confirmed by Kafka → position → inbox documents erased, while more is
being published (invariant position-after-publish). A record that the next leader repeats is the same record.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.producer.message_accumulator import BatchBuilder

from eden_memory import metrics
from eden_memory.errors import ServerAway, describe
from eden_memory.kafka import KafkaArguments
from eden_memory.kafka.broken_clients import close_producer, starting
from eden_memory.kafka.error_kinds import TOO_LARGE
from eden_memory.kafka.fencing import fence, take_identity
from eden_memory.kafka.record import EVERYWHERE, EVERYWHERE_ELSE, Outgoing
from eden_memory.kafka.topics import Topics
from eden_memory.logs import LibraryLogger
from eden_memory.mongo.change_stream import ChangeStream
from eden_memory.mongo.changes import DocumentPage, SourceFailed
from eden_memory.mongo.document_fields import PART_KINDS
from eden_memory.schemas.envelope import parse_type
from eden_memory.schemas.events import MessageRecorded
from eden_memory.source.inbox_store import MongoInbox
from eden_memory.source.listed_source import Expanded, ListedSource, Recorded
from eden_memory.source.message_mapping import TOPIC
from eden_memory.source.messages_store import CollectionReader, ExcludedSessions, source_errors
from eden_memory.source.position_store import MongoPositions, TailerPosition
from eden_memory.source.source_mapping import FORGOTTEN, Mapped, SourceMapping
from eden_memory.stages.dead_letter_store import DeadLetters
from eden_memory.stages.dead_letters import refused_letter
from eden_memory.stages.patience import until_done
from eden_memory.stages.publishing import UsedPartitions, partition_for
from eden_memory.tasks import end
from eden_memory.telemetry.spans import sent

log = LibraryLogger("eden.tailer")


BATCH_BYTES = 900_000
FEW_RECORDS, FEW_BYTES = 8, 4_000
"""Records that are sent together are not compressed up to here: that would cost more than it saves."""
UNCOMPRESSED = 0
ANSWER_SECONDS = 20.0
"""Seconds without a confirmation after which a broker counts as frozen."""
STOP_SECONDS = 0.7
"""For sending what is left, and for disconnecting: a frozen broker must not hold up a stop."""


class PublishFailed(ServerAway):
    """Kafka refused or did not answer; what was sent since the last saved position has to be sent again."""


class FencedPublisher:
    """One leader's producer.

    `limits` holds the bytes that topics take at once, by full name, as far as a broker has refused more: half of
    what it refused last. A refusal ends the publisher, so they outlive it.
    """

    def __init__(
        self,
        kafka: KafkaArguments,
        transactional_id: str,
        topics: Topics,
        limits: dict[str, int] | None = None,
        letters: DeadLetters | None = None,
        used: UsedPartitions | None = None,
    ) -> None:
        """`letters`: takes what no broker takes; None: such a record is lost.

        Keys of a topic that `used` does not know are spread over all its partitions.
        """
        self._read_used = used
        self._used: Mapping[str, int] = {}
        self._topics = topics
        self._letters = letters
        self._limits = {} if limits is None else limits
        self._kafka, self._transactional_id = kafka, transactional_id
        self._producer: Any = None
        self._compressed, self._dirty = True, False
        self._building: dict[tuple[str, int], Any] = {}
        self._sent: set[asyncio.Future[Any]] = set()
        self._failed: BaseException | None = None
        self._partitions: dict[str, tuple[str, int]] = {}

    async def start(self) -> None:
        """Shut out every older publisher with this transactional id, then connect."""
        if self._read_used is not None:
            self._used = await self._read_used()
        async with _answered("starting"):
            written = self._topics.written_by("tailer")
            identity = await fence(self._kafka, self._transactional_id, written)
            self._producer = AIOKafkaProducer(
                **self._kafka,
                enable_idempotence=True,
                compression_type="zstd",
                max_batch_size=BATCH_BYTES,
                linger_ms=0,
                request_timeout_ms=int(ANSWER_SECONDS * 1000),
            )
            take_identity(self._producer, identity)
            with starting():
                await self._producer.start()

    async def stop(self) -> None:
        """Disconnect; what is not confirmed yet may arrive or not."""
        for future in self._sent:
            future.cancel()
        if self._producer is not None:
            await close_producer(self._producer, STOP_SECONDS)

    async def partitions(self, topic: str) -> int:
        """Return over how many partitions of a topic keys are spread."""
        return (await self._place(topic))[1]

    async def send(self, records: Sequence[Outgoing]) -> None:
        """Hand records over, in order per partition; return when there is room, not when they are confirmed."""
        await self.add(records)
        await self.ship()

    async def add(self, records: Sequence[Outgoing]) -> None:
        """Add records to the batches that `ship` hands over; a batch that is full is handed over at once."""
        if self._failed is not None:
            raise PublishFailed(f"publishing: {self._failed!r}") from self._failed
        if not records:
            return
        self._compressed = len(records) > FEW_RECORDS or sum(record.size for record in records) > FEW_BYTES
        for record in records:
            topic, count = self._partitions.get(record.topic) or await self._place(record.topic)
            for partition in _partitions_of(record, count):
                if not self._fits(topic, partition, record):
                    await self._append(topic, partition, record)

    async def ship(self) -> None:
        """Hand over what was added."""
        for topic, partition in list(self._building):
            await self._ship(topic, partition)

    async def confirmed(self) -> bool:
        """Wait until everything sent so far is confirmed; tell whether anything was sent since the last call."""
        dirty, self._dirty = self._dirty, False
        async with _answered("publishing"):
            await asyncio.gather(*self._sent)
        return dirty

    def _fits(self, topic: str, partition: int, record: Outgoing) -> bool:
        """Add a record to a batch that has room for it, as nearly every record does; False if there is none."""
        builder = self._building.get((topic, partition))
        return builder is not None and topic not in self._limits and _added(builder, record)

    async def _append(self, topic: str, partition: int, record: Outgoing) -> None:
        place = topic, partition
        if (limit := self._limits.get(topic)) is not None:
            if record.size > limit:
                await self._bury(record, limit)
                return
            if place in self._building and self._building[place].size() + record.size > limit:
                await self._ship(topic, partition)
        if not _added(self._batch_of(place), record):
            await self._ship(topic, partition)
            if not _added(self._batch_of(place), record):
                raise PublishFailed(f"a record of {len(record.value or b'')} bytes does not fit into {topic}")

    def _batch_of(self, place: tuple[str, int]) -> Any:
        builder = self._building.get(place)
        if builder is None:
            builder = self._building[place] = self._batch()
        return builder

    def _batch(self) -> Any:
        return self._producer.create_batch() if self._compressed else BatchBuilder(BATCH_BYTES, UNCOMPRESSED)

    async def _bury(self, record: Outgoing, limit: int) -> None:
        """Store the dead letter of a record that no broker takes, without its value."""
        metrics.DEAD_LETTERS.labels("tailer", "MessageSizeTooLargeError").inc()
        name = self._topics.name(record.topic)
        log.error("a topic does not take a record", topic=name, bytes=record.size, limit=limit)
        if (letters := self._letters) is not None:
            letter = refused_letter(letters.origin("tailer"), name, record, datetime.now(UTC))
            await until_done(lambda: letters.put([letter]))

    async def _ship(self, topic: str, partition: int) -> None:
        builder = self._building.pop((topic, partition), None)
        if builder is None:
            return
        size = builder.size()
        async with _answered("publishing"):
            confirmed: asyncio.Future[Any] = await self._producer.send_batch(
                builder, topic, partition=partition
            )
        self._sent.add(confirmed)
        self._dirty = True
        confirmed.add_done_callback(partial(self._done, topic, size))

    def _done(self, topic: str, size: int, confirmed: "asyncio.Future[Any]") -> None:
        if confirmed.cancelled():
            return
        error = confirmed.exception()
        if error is None:
            self._sent.discard(confirmed)
            return
        if isinstance(error, TOO_LARGE):
            self._limits[topic] = size // 2
        self._failed = self._failed or error

    async def _place(self, topic: str) -> tuple[str, int]:
        if topic not in self._partitions:
            name = self._topics.name(topic)
            async with _answered(f"looking up {name}"):
                found = await self._producer.partitions_for(name)
            if not found:
                raise PublishFailed(f"topic {name} does not exist", "Create it: eden topics apply")
            self._partitions[topic] = name, self._used.get(name, len(found))
        return self._partitions[topic]


@asynccontextmanager
async def _answered(doing: str) -> AsyncGenerator[None]:
    """Limit the time of a call to Kafka; PublishFailed when it fails or takes longer."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            yield
    except (KafkaError, TimeoutError) as error:
        raise PublishFailed(f"Kafka, {doing}: {describe(error)}") from error


def _added(builder: Any, record: Outgoing) -> bool:
    """Add a record to a batch; False, and the batch is closed, if it is full."""
    _, key, value, headers, *_ = record
    return builder.append(timestamp=None, key=key, value=value, headers=headers) is not None


def _partitions_of(record: Outgoing, count: int) -> Iterable[int]:
    if record.partition is None:
        return (partition_for(record.ordering_key, count),)
    if record.partition == EVERYWHERE:
        return range(count)
    if record.partition == EVERYWHERE_ELSE:
        own = partition_for(record.ordering_key, count)
        return (number for number in range(count) if number != own)
    return (record.partition,)


MESSAGE = MessageRecorded.__name__
FENCED_SECONDS = 43_200.0
"""By default Kafka forgets a producer after a day in a partition where it writes nothing, its transactional id after
a week, and with them whom it shuts out."""
DEAD_TOGETHER = 1_000
"""Dead letters that are stored at once."""


@dataclass(frozen=True, slots=True)
class Source:
    """The collections that the tailer reads, the store of its position, and the marks of what is to be forgotten."""

    changes: ChangeStream
    messages: CollectionReader
    inbox: MongoInbox
    positions: MongoPositions
    mark: Callable[[Sequence[Outgoing]], Awaitable[None]]
    """Store the marks that these requests to forget ask for."""
    letters: DeadLetters
    topic: str
    """Where messages go, by its whole name."""
    excluded: ExcludedSessions | None = None
    """None: no session is."""
    listed: ListedSource | None = None
    """Where documents list their messages; None: each document is a message."""
    since: datetime | None = None
    """The oldest listed message that a first start reads; the reader itself leaves older documents out."""


class Leader:
    """The tailer that holds the lease of `epoch`: publishes, and makes final what it published."""

    def __init__(
        self,
        epoch: int,
        source: Source,
        mapping: SourceMapping,
        publisher: FencedPublisher,
        commit_seconds: float,
        stopping: asyncio.Event,
    ) -> None:
        self.epoch, self._commit_seconds = epoch, commit_seconds
        self.source, self.mapping, self.publisher = source, mapping, publisher
        self.stopping = stopping
        self._position: TailerPosition | None = None
        self.saved: TailerPosition | None = None
        """The position that the next leader would begin from."""
        self._committed = self._claimed = time.monotonic()
        self._saving: asyncio.Task[None] | None = None
        self._carried: list[Any] = []
        self.published = False
        """Whether any message of this source was published, now or before."""
        self.published_until: datetime | None = None
        """Everything in the stream up to this time is published."""

    @property
    def began(self) -> bool:
        """Whether there is a position to go on from."""
        return self._position is not None

    @property
    def position(self) -> TailerPosition:
        """How far this leader has come; RuntimeError before `begin` at the first start."""
        if self._position is None:
            raise RuntimeError("a position is taken before anything is read")
        return self._position

    async def claim(self) -> None:
        """Shut out older leaders, in Kafka and in MongoDB, and take over the position."""
        await self.publisher.start()
        self._claimed = time.monotonic()
        self._position = self.saved = await self.source.positions.claim(self.epoch)
        if self.source.listed is not None:
            self.source.listed.epoch = self.epoch
        self.published = self._position is not None and self._position.published

    async def begin(self, phase: str) -> None:
        """Take and save the stream's position of this moment, for a backfill or a merge."""
        now = await self.source.changes.now()
        await self.settle(TailerPosition(now.position, now.version, phase))

    async def publish(self, mapped: Mapped, now: datetime, origin: str, *, more: bool = False) -> None:
        """Send the records of a batch, and store a dead letter for each document that became no record.

        `more`: the records may wait until the publisher is told to ship them, with those of the next calls. What is
        to be forgotten is marked first: readers heed a request while it waits in the inbox, and its mark from then.
        """
        for refused in mapped.unmapped[:3]:
            identity = repr(refused.document["_id"])[:80]
            log.warning(
                "document cannot be used", collection=refused.collection, id=identity, reason=refused.reason
            )
        for start in range(0, len(mapped.unmapped), DEAD_TOGETHER):
            together = mapped.unmapped[start : start + DEAD_TOGETHER]
            letters = [self.mapping.dead_letter(refused, now, self.source.topic) for refused in together]
            await until_done(partial(self.source.letters.put, letters))
        if asked := [record for record in mapped.records if record.topic == FORGOTTEN]:
            with source_errors("marking what is to be forgotten"):
                await self.source.mark(asked)
        if self.source.excluded is not None:
            await _leave_out(self.source.excluded, mapped)
        begun = time.time_ns()
        await (self.publisher.add if more else self.publisher.send)(mapped.records)
        sent(mapped.records, begun)
        self._carried.extend(mapped.carried)
        self.published |= MESSAGE in _count(origin, mapped)

    async def messages_in(self, page: DocumentPage, recorded: Recorded | None = None) -> Expanded:
        """Return the messages of a page of documents; `recorded`: those that the topic holds of a document."""
        listed = self.source.listed
        return Expanded(page) if listed is None else await listed.page(page, recorded)

    async def existing(self, encoded_ids: Sequence[str]) -> set[str]:
        """Return those of the messages that the collection still has."""
        if self.source.listed is not None:
            return await self.source.listed.existing(encoded_ids)
        return await self.source.messages.existing(encoded_ids)

    async def advance(self, position: TailerPosition) -> None:
        """Move to `position`: everything before it was published. When it is time, make that final beside it."""
        self._position = position
        if self._saving is not None and self._saving.done():
            await self._saved()
        now = time.monotonic()
        if now - self._claimed >= FENCED_SECONDS:
            await self._claim_again()
        elif self._saving is None and now - self._committed >= self._commit_seconds:
            self._saving = asyncio.create_task(self._make_final(position, list(self._carried)))

    async def settle(self, position: TailerPosition | None = None) -> None:
        """Make final what was published: wait for Kafka, save the position, erase the inbox documents carried."""
        self._position = position or self._position
        await self._saved()
        await self._make_final(self._position, list(self._carried))

    async def close(self) -> None:
        """Disconnect; the next leader repeats what is not final yet."""
        if self._saving is not None:
            await end([self._saving])
        await self.publisher.stop()

    async def _claim_again(self) -> None:
        await self.settle()
        await self.publisher.stop()
        await self.claim()

    async def _saved(self) -> None:
        """Wait for the saving that goes on beside the work; raises what it met."""
        saving, self._saving = self._saving, None
        if saving is not None:
            await saving

    async def _make_final(self, position: TailerPosition | None, carried: Sequence[Any]) -> None:
        self._committed = time.monotonic()
        if position is not None:
            position = replace(position, published=self.published)
        if await self.publisher.confirmed():
            metrics.TAILER_COMMITS.inc()
        try:
            await self._save(position, carried)
        except SourceFailed as error:  # it stays behind, which is safe, and is saved the next time
            log.warning("position not saved", reason=error.what)

    async def _save(self, position: TailerPosition | None, carried: Sequence[Any]) -> None:
        if position is not None and position != self.saved:
            await self.source.positions.save(self.epoch, position)
            self.saved = position
            if self.source.listed is not None:
                await self.source.listed.final(position.version)
        if carried:
            await self.source.inbox.erase(carried)
            del self._carried[: len(carried)]

    def erase_later(self, ids: Sequence[Any]) -> None:
        """Erase inbox documents that are already carried at the next `settle`."""
        self._carried.extend(ids)


async def _leave_out(excluded: ExcludedSessions, mapped: Mapped) -> None:
    """Take out the messages and added texts of excluded sessions; what ends a message there stays."""
    said = {record.ordering_key.decode() for record in mapped.records if _is_message(record)}
    if gone := await excluded.among(said):
        mapped.records[:] = [
            record
            for record in mapped.records
            if record.ordering_key.decode() not in gone or not _is_message(record)
        ]


def _is_message(record: Outgoing) -> bool:
    name = _type(record) if record.topic == TOPIC else None
    return name is not None and parse_type(name.decode())[0] == MESSAGE


for _kind_left_out in (*PART_KINDS, "element", "json", "other"):
    metrics.TAILER_LEFT_OUT.labels(_kind_left_out)


def _count(origin: str, mapped: Mapped) -> Counter[str]:
    metrics.TAILER_UNMAPPED.inc(len(mapped.unmapped))
    metrics.TAILER_EMPTY.inc(mapped.empty)
    metrics.TAILER_AUTHORLESS.inc(mapped.authorless)
    for kind, number in mapped.left_out.items():
        metrics.TAILER_LEFT_OUT.labels(kind).inc(number)
    metrics.TAILER_UNDATED.inc(mapped.undated)
    metrics.TAILER_RECORDS.labels(origin, "dead letter").inc(len(mapped.unmapped))
    types = Counter(map(_type, mapped.records))
    kinds: Counter[str] = Counter()
    for type_, number in types.items():
        kinds["tombstone" if type_ is None else parse_type(type_.decode())[0]] += number
    for kind, number in kinds.items():
        metrics.TAILER_RECORDS.labels(origin, kind).inc(number)
    return kinds


def _type(record: Outgoing) -> bytes | None:
    """Return the event's type; None for a tombstone."""
    if record.value is not None:
        for name, value in record.headers:
            if name == "ce_type":
                return value
    return None
