"""Topics from their beginning, or from further on, to the ends that they had when reading began; in no group."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from eden_memory.errors import EdenError
from eden_memory.kafka.broken_clients import close_consumer
from eden_memory.kafka.connection import start
from eden_memory.kafka.offsets import partitions_asked
from eden_memory.kafka.record import Record, as_record

POLL_MS = 500
TOGETHER = 1_000
Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class TopicReader:
    """The offsets of each partition when it was made: where reading begins, and behind the last record."""

    consumer: Any
    begins: Offsets
    ends: Offsets

    async def batches(self, *only: TopicPartition, patience: float = inf) -> AsyncGenerator[list[Record]]:
        """All records before the ends (of `only` these partitions, if any are named), in order per partition.

        Uncommitted transactions included. EdenError where the broker gives nothing for `patience` seconds.
        """
        places = [tp for tp in only or self.ends if self.begins[tp] < self.ends[tp]]
        passed, until = -1, monotonic() + patience
        while places and (behind := await self._behind(places)):
            if behind != passed:
                passed, until = behind, monotonic() + patience
            elif monotonic() > until:
                where = f"{places[0].topic}/{places[0].partition}"
                what = f"Kafka gave nothing of {where} for {patience:g} s"
                raise EdenError(what, "Check that its broker runs, and try again.")
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
        """By positions, not by records: markers of transactions take offsets, too."""
        positions = await asyncio.gather(*(self.consumer.position(tp) for tp in places))
        return sum(max(0, self.ends[tp] - at) for tp, at in zip(places, positions, strict=True))


@asynccontextmanager
async def consuming(client: dict[str, Any], partitions: Sequence[TopicPartition]) -> AsyncGenerator[Any]:
    """A consumer of these partitions, in no group; it is closed whatever happens."""
    consumer: Any = AIOKafkaConsumer(**client, enable_auto_commit=False, auto_offset_reset="earliest")
    await start(consumer)
    try:
        consumer.assign(partitions)
        yield consumer
    finally:
        await close_consumer(consumer)


@asynccontextmanager
async def reading_partitions(
    client: dict[str, Any], partitions: Sequence[TopicPartition], since: Offsets | None = None
) -> AsyncGenerator[TopicReader]:
    """`since`: offsets to begin from, where the broker still holds them."""
    async with consuming(client, partitions) as consumer:
        ends = await consumer.end_offsets(partitions)
        begins = {
            tp: min(max(offset, (since or {}).get(tp, 0)), ends[tp])
            for tp, offset in (await consumer.beginning_offsets(partitions)).items()
        }
        for tp, offset in begins.items():
            consumer.seek(tp, offset)
        yield TopicReader(consumer, begins, ends)


@asynccontextmanager
async def reading(
    client: dict[str, Any], topics: Sequence[str], since: Offsets | None = None
) -> AsyncGenerator[TopicReader]:
    """Topics by their whole names; EdenError where one is not there. `since`: offsets to begin from."""
    async with reading_partitions(client, await all_partitions(client, topics), since) as reader:
        yield reader


async def all_partitions(client: dict[str, Any], topics: Sequence[str]) -> list[TopicPartition]:
    """Of topics by their whole names; EdenError where one is not there."""
    found = await partitions_asked(client, topics)
    refuse_missing(topics, (tp.topic for tp in found))
    return found


def refuse_missing(topics: Sequence[str], there: Iterable[str]) -> None:
    """EdenError where a topic is not there: nothing would be restored from it, and nobody would notice."""
    if missing := sorted(set(topics) - set(there)):
        raise EdenError(
            f"Kafka has no topic {', '.join(missing)}",
            "Is EDEN_KAFKA_TOPIC_PREFIX right? What is missing is made, empty, by: eden topics apply",
        )
