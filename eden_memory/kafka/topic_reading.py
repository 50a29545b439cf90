"""Read topics without a group: where they begin and end, their records, and fetches that wait long at the broker.

A broker answers the requests of one connection one after another: what follows a fetch stands behind it. So fetches
have a connection of their own, and one that is cancelled, as when partitions move, closes it.

While a fetch of a broker is under way, aiokafka asks that broker for nothing else. A fetch that leaves out a
partition (paused, not yet consumed, not yet placed) keeps records of that partition waiting, so it stays short.

A consumer that has time rests before the next fetch where the last one brought little, and a group's only member
sends fewer heartbeats.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.protocol.fetch import FetchRequest

from eden_memory.errors import EdenError, ServerAway
from eden_memory.kafka import KafkaArguments
from eden_memory.kafka.broken_clients import close_consumer
from eden_memory.kafka.connection import start
from eden_memory.kafka.record import Record, as_record
from eden_memory.tasks import until_tick

POLL_MS = 500
STILL_SECONDS = 30.0
"""Seconds without a record after which a partition is given up."""
TOGETHER = 5_000
Offsets = Mapping[TopicPartition, int]


FETCHES = "fetches"
"""The group of a client's connections that carries them."""
SHORT_MS, LONG_MS = 500, 10_000
FETCHER_MS = 1_000
"""Milliseconds between two looks of a fetcher for what to fetch.

A wake-up that arrives at the very moment when a request ends is lost.
"""
LITTLE_BYTES = 20_000
SPARING_SECONDS = 3.0
"""Seconds between two heartbeats of a group's only member: three of them fit into the session's timeout."""


class TopicOffsets:
    """Where topics begin and end, over one consumer.

    A transaction marker takes an offset too: behind a reader that stopped before one was written, a lag of one a
    marker shows until it runs again.
    """

    def __init__(self, kafka: KafkaArguments, topics: Sequence[str]) -> None:
        """`topics` by their full names, those that exist count."""
        self._topics = topics
        self._consumer = new_reader(kafka)
        self.partitions: list[TopicPartition] = []

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def connect(self) -> None:
        """Connect, and find the partitions; a KafkaConnectionError where no broker answers."""
        await start(self._consumer)
        try:
            await self.find_partitions()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Disconnect."""
        await close_consumer(self._consumer)

    async def find_partitions(self) -> None:
        """Find new topics and partitions."""
        self.partitions = await partitions_of(self._consumer, self._topics)

    async def begins(self) -> dict[TopicPartition, int]:
        """The first offset of each partition that the broker still holds."""
        return await self._consumer.beginning_offsets(self.partitions) if self.partitions else {}

    async def ends(self) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition."""
        return await self._consumer.end_offsets(self.partitions) if self.partitions else {}


@dataclass(frozen=True, slots=True)
class TopicReader:
    """The offsets of each partition when it was made: where reading begins, and behind the last record."""

    consumer: Any
    begins: Offsets
    ends: Offsets

    async def batches(self, *only: TopicPartition, patience: float = inf) -> AsyncGenerator[list[Record]]:
        """All records before the ends (of `only` these partitions, if any are named), in order per partition.

        Uncommitted transactions included. ServerAway where the broker gives nothing for `patience` seconds.
        """
        places = [tp for tp in only or self.ends if self.begins[tp] < self.ends[tp]]
        passed, until = -1, monotonic() + patience
        while places and (behind := await self._behind(places)):
            if behind != passed:
                passed, until = behind, monotonic() + patience
            elif monotonic() > until:
                where = f"{places[0].topic}/{places[0].partition}"
                what = f"Kafka gave nothing of {where} for {patience:g} s"
                raise ServerAway(what, "Check that its broker runs, and try again.")
            fetched = await self.consumer.getmany(*places, timeout_ms=POLL_MS, max_records=TOGETHER)
            batch = [
                as_record(record)
                for tp, records in fetched.items()
                for record in records
                if record.offset < self.ends[tp]
            ]
            if batch:
                yield batch

    async def _behind(self, places: Sequence[TopicPartition]) -> int:
        """Compare positions, not records: transaction markers take offsets, too."""
        positions = await asyncio.gather(*(self.consumer.position(tp) for tp in places))
        return sum(max(0, self.ends[tp] - at) for tp, at in zip(places, positions, strict=True))

    def seek(self, offsets: Offsets) -> None:
        """Continue from these offsets."""
        for tp, offset in offsets.items():
            self.consumer.seek(tp, offset)


def new_reader(kafka: KafkaArguments) -> Any:
    """Return a consumer in no group, which begins at the beginning; not connected yet."""
    options: dict[str, Any] = {"enable_auto_commit": False, "auto_offset_reset": "earliest", **kafka}
    return AIOKafkaConsumer(**options)


@asynccontextmanager
async def consuming(kafka: KafkaArguments, partitions: Sequence[TopicPartition] = ()) -> AsyncGenerator[Any]:
    """Yield a consumer of these partitions, in no group; it is always closed."""
    consumer = new_reader(kafka)
    await start(consumer)
    try:
        if partitions:
            consumer.assign(partitions)
        yield consumer
    finally:
        await close_consumer(consumer)


@asynccontextmanager
async def reading_partitions(
    kafka: KafkaArguments, partitions: Sequence[TopicPartition], since: Offsets | None = None
) -> AsyncGenerator[TopicReader]:
    """`since`: offsets to begin from, where the broker still holds them."""
    async with consuming(kafka, partitions) as consumer:
        ends = await consumer.end_offsets(partitions)
        begins = {
            tp: min(max(offset, (since or {}).get(tp, 0)), ends[tp])
            for tp, offset in (await consumer.beginning_offsets(partitions)).items()
        }
        reader = TopicReader(consumer, begins, ends)
        reader.seek(begins)
        yield reader


@asynccontextmanager
async def reading(
    kafka: KafkaArguments, topics: Sequence[str], since: Offsets | None = None
) -> AsyncGenerator[TopicReader]:
    """Topics by their whole names; EdenError where one is not there. `since`: offsets to begin from."""
    async with reading_partitions(kafka, await all_partitions(kafka, topics), since) as reader:
        yield reader


async def first_records(kafka: KafkaArguments, topics: Sequence[str]) -> list[Record]:
    """Return one record of each topic that holds any: the first of one of its partitions.

    EdenError where the broker gives none for `STILL_SECONDS`.
    """
    async with TopicOffsets(kafka, topics) as offsets:
        begins, ends = await offsets.begins(), await offsets.ends()
    asked = list({tp.topic: tp for tp in ends if begins[tp] < ends[tp]}.values())
    found: list[Record] = []
    if asked:
        async with reading_partitions(kafka, asked) as reader:
            for tp in asked:
                async with aclosing(reader.batches(tp, patience=STILL_SECONDS)) as batches:
                    found += (await anext(batches, list[Record]()))[:1]
    return found


async def partitions_of(consumer: Any, topics: Iterable[str]) -> list[TopicPartition]:
    """Return every partition of the topics that exist, in order; the consumer is started."""
    cluster = await consumer._client.fetch_all_metadata()
    return sorted(
        TopicPartition(topic, number)
        for topic in topics
        for number in cluster.partitions_for_topic(topic) or ()
    )


async def partitions_asked(kafka: KafkaArguments, topics: Sequence[str]) -> list[TopicPartition]:
    """As `partitions_of`, over a connection of its own."""
    async with consuming(kafka) as consumer:
        return await partitions_of(consumer, topics)


async def all_partitions(kafka: KafkaArguments, topics: Sequence[str]) -> list[TopicPartition]:
    """Of topics by their whole names; EdenError where one is not there."""
    found = await partitions_asked(kafka, topics)
    refuse_missing(topics, (tp.topic for tp in found))
    return found


def refuse_missing(topics: Sequence[str], there: Iterable[str]) -> None:
    """EdenError where a topic is not there: nothing would be restored from it, and nobody would notice."""
    if missing := sorted(set(topics) - set(there)):
        raise EdenError(
            f"Kafka has no topic {', '.join(missing)}",
            "Is EDEN_KAFKA_TOPIC_PREFIX right? What is missing is made, empty, by: eden topics apply",
        )


def places_in(topic: str, ends: Mapping[int, int]) -> dict[TopicPartition, int]:
    """Offsets by partition of one topic, with its whole name."""
    return {TopicPartition(topic, partition): end for partition, end in ends.items()}


def let_fetches_wait(
    consumer: Any, settled: Callable[[], Collection[TopicPartition]], rest: float = 0.0
) -> None:
    """Let a consumer's fetches wait LONG_MS for records where they ask for all `settled` partitions of a broker.

    `settled`: the partitions that are read from where they should be. `rest`: seconds between a fetch that brought
    records, but few, and the next one to the same broker.
    """
    client = consumer._client
    send = client.send
    rested: dict[int, float] = {}

    async def sent(node_id: int, asking: Any, **more: Any) -> Any:
        if not isinstance(asking, FetchRequest):
            return await send(node_id, asking, **more)
        if (left := rested.get(node_id, 0.0) - time.monotonic()) > 0:
            await asyncio.sleep(left)
        request: Any = asking
        asked = sum(len(partitions) for _, partitions in request.topics)
        led = sum(client.cluster.leader_for_partition(tp) == node_id for tp in settled())
        request._max_wait_ms = LONG_MS if asked == led else SHORT_MS  # pyright: ignore[reportPrivateUsage]
        try:
            response = await send(node_id, request, group=FETCHES)
        except asyncio.CancelledError:
            if (connection := client._conns.pop((node_id, FETCHES), None)) is not None:
                connection.close()
            raise
        rested[node_id] = time.monotonic() + (rest if 0 < _size(response) < LITTLE_BYTES else 0.0)
        return response

    client.send = sent


def _size(response: Any) -> int:
    """Return the bytes of the records that a fetch brought."""
    return sum(len(partition[-1] or b"") for _, partitions in response.topics for partition in partitions)


def spare_heartbeats(
    consumer: Any, alone: Callable[[], bool], pause: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> None:
    """Let a member that is `alone` wait longer before a heartbeat, unless the last one failed.

    Heartbeats tell a member of a rebalance. While it is told of one late, it goes on with its partitions, and only
    whoever joins waits; between several members, those that were told stand still for those that were not.
    """
    coordinator = consumer._coordinator
    send, answered = coordinator._do_heartbeat, False

    async def beat() -> bool:
        nonlocal answered
        if answered and alone():
            await pause(until_tick(SPARING_SECONDS) % SPARING_SECONDS)
        answered = await send()
        return answered

    coordinator._do_heartbeat = beat
