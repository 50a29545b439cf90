"""Confirmed publishing in order: one sender per partition, with one batch in progress.

`send()` from many tasks came out of order after the broker was killed; one sender per partition does not.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError, MessageSizeTooLargeError, ProducerClosed
from aiokafka.partitioner import murmur2  # pyright: ignore[reportUnknownVariableType]

from eden_memory.kafka import KafkaArguments
from eden_memory.kafka.broken_clients import close_producer, sending, starting
from eden_memory.kafka.error_kinds import TOO_LARGE
from eden_memory.stages.outcome import StoredRecord
from eden_memory.tasks import end, first_of
from eden_memory.telemetry.spans import sent

MAX_BATCH_BYTES = 1_000_000
MAX_RECORD_BYTES = 5_000_000
"""A dead letter holds a record of up to 4 MB and its headers."""
STOP_SECONDS = 3.0
"""Seconds for records in progress to be confirmed at a stop."""

Producers = Callable[[], Any]
"""Makes an AIOKafkaProducer, not yet started (untyped: the library has no annotations)."""
UsedPartitions = Callable[[], Awaitable[Mapping[str, int]]]
"""Reads the number of partitions over which keys of a topic are spread (partition_count_store.py)."""


@lru_cache(maxsize=65_536)
def _hash(key: bytes) -> int:
    return int(murmur2(key)) & 0x7FFFFFFF  # pyright: ignore[reportUnknownArgumentType]


def partition_for(ordering_key: bytes, partitions: int) -> int:
    """Return the partition of an ordering key: murmur2, as Kafka's own clients compute it."""
    return _hash(ordering_key) % partitions


def new_producer(kafka: KafkaArguments) -> Any:
    """An idempotent producer that waits for all replicas."""
    return AIOKafkaProducer(
        **kafka,
        acks="all",
        enable_idempotence=True,
        compression_type="zstd",
        max_batch_size=MAX_RECORD_BYTES,
        max_request_size=MAX_RECORD_BYTES + 100_000,
        request_timeout_ms=30_000,
    )


@dataclass(slots=True, eq=False)
class _Waiting:
    record: StoredRecord
    confirmed: "asyncio.Future[None]"


class Publisher:
    """Publishes records and returns when the brokers have confirmed all of them.

    Keys of a topic that `used` does not know are spread over all its partitions.
    """

    def __init__(self, producers: Producers, used: UsedPartitions | None = None) -> None:
        self._producers, self._read_used = producers, used
        self._used: Mapping[str, int] = {}
        self._producer: Any = None
        self._starting = asyncio.Lock()
        self._stopped = False
        self._stopping: set[asyncio.Task[None]] = set()
        self._senders: dict[tuple[str, int], _Sender] = {}

    async def start(self) -> None:
        """Connect."""
        self._stopped = False
        if self._read_used is not None:
            self._used = await self._read_used()
        await self.producer()

    async def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Let what is under way finish, but not for ever, then disconnect.

        Whoever waits for more is refused: what counts is stored, and published by the next that reads its record.
        """
        self._stopped = True
        tasks = {sender.task for sender in self._senders.values() if sender.task is not None}
        tasks |= self._stopping
        late = (await asyncio.wait(tasks, timeout=seconds))[1] if tasks else ()
        await end(late)
        if (producer := self._producer) is not None:
            self._producer = None
            await close_producer(producer, 1.0 if late else seconds)

    async def publish(self, records: Sequence[StoredRecord]) -> None:
        """Send in order per partition and wait for the confirmations; a KafkaError if one is refused."""
        producer, begun = await self.producer(), time.time_ns()
        waiting: list[_Waiting] = []
        loop = asyncio.get_running_loop()
        there = {topic: len(await producer.partitions_for(topic)) for topic in {r.topic for r in records}}
        counts = {topic: self._used.get(topic, count) for topic, count in there.items()}
        for record in records:
            waited = _Waiting(record, loop.create_future())
            waiting.append(waited)
            self._sender(record.topic, partition_for(record.ordering_key, counts[record.topic])).put(waited)
        results = await asyncio.gather(*(waited.confirmed for waited in waiting), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        sent(records, begun)

    async def producer(self) -> Any:
        """Return the started producer, a new one after the last one failed."""
        async with self._starting:
            if self._stopped:
                raise ProducerClosed
            if self._producer is None:
                producer = self._producers()
                try:
                    with starting():
                        await producer.start()
                except BaseException:
                    await producer.stop()
                    raise
                self._producer = producer
            return self._producer

    def discard(self, producer: Any) -> None:
        """Drop a failed producer: its sequence numbers may have a gap that no retry can fill."""
        if self._producer is producer:
            self._producer = None
            stopping = asyncio.create_task(close_producer(producer))
            self._stopping.add(stopping)
            stopping.add_done_callback(self._stopping.discard)

    def _sender(self, topic: str, partition: int) -> "_Sender":
        sender = self._senders.get((topic, partition))
        if sender is None:
            sender = self._senders[topic, partition] = _Sender(self, topic, partition)
        return sender


class _Sender:
    """The records that wait for one partition, and the task that sends them."""

    def __init__(self, publisher: Publisher, topic: str, partition: int) -> None:
        self._publisher = publisher
        self._topic = topic
        self._partition = partition
        self._queue: deque[_Waiting] = deque()
        self._one_by_one = 0
        """How many records to send one by one, because together they were refused as too large."""
        self.task: asyncio.Task[None] | None = None

    def put(self, _waiting: _Waiting) -> None:
        self._queue.append(_waiting)
        if self.task is None or self.task.done():
            self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while self._queue:
            taken: list[_Waiting] = []
            try:
                producer = await self._publisher.producer()
                await self._send(producer, taken)
            except asyncio.CancelledError:
                _refuse([*taken, *self._queue], ProducerClosed())
                raise
            except Exception as error:  # noqa: BLE001 - handed to those who wait for the confirmation
                _refuse(taken or self._queue, error)
                if not taken:
                    self._queue.clear()

    async def _send(self, producer: Any, taken: list[_Waiting]) -> None:
        if (
            self._queue[0].record.size > MAX_RECORD_BYTES
        ):  # aiokafka takes a batch's first record, whatever its size
            taken.append(self._queue.popleft())
            raise MessageSizeTooLargeError(f"a record of {taken[0].record.size} bytes for {self._topic}")
        batch = producer.create_batch()
        while self._queue and (not taken or (not self._one_by_one and batch.size() < MAX_BATCH_BYTES)):
            record = self._queue[0].record
            if record.size > MAX_RECORD_BYTES or not _append(batch, record):
                break
            taken.append(self._queue.popleft())
        batch.close()
        self._one_by_one = max(self._one_by_one - 1, 0)
        try:
            await _confirmation(
                producer, await producer.send_batch(batch, self._topic, partition=self._partition)
            )
        except Exception as error:
            self._publisher.discard(producer)
            if len(taken) == 1 or not isinstance(error, TOO_LARGE):
                raise
            self._one_by_one = len(taken)
            self._queue.extendleft(reversed(taken))
            taken.clear()
        for waited in taken:
            if not waited.confirmed.done():
                waited.confirmed.set_result(None)


async def _confirmation(producer: Any, sent: "asyncio.Future[Any]") -> None:
    """Wait until a batch is confirmed, or the producer's own task has ended and nobody would confirm it."""
    await first_of(sent, sending(producer))
    if not sent.done():
        raise KafkaConnectionError("the producer has broken down")
    sent.result()


def _append(batch: Any, record: StoredRecord) -> bool:
    headers = list(record.headers)
    return batch.append(timestamp=None, key=record.key, value=record.value, headers=headers) is not None


def _refuse(waiting: Iterable[_Waiting], error: Exception) -> None:
    for refused in waiting:
        if not refused.confirmed.done():
            refused.confirmed.set_exception(error)
