"""Topics from their beginning, or from further on, to the ends that they had when reading began; in no group."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from eden_memory.errors import EdenError
from eden_memory.kafka.connection import start
from eden_memory.kafka.offsets import partitions_asked
from eden_memory.kafka.record import Record, as_record

POLL_MS = 500
TOGETHER = 1_000


class TopicReader:
    """`ends`: the offset behind the last record of each partition, taken when it was made."""

    def __init__(self, consumer: Any, ends: Mapping[TopicPartition, int]) -> None:
        self._consumer, self.ends = consumer, ends

    async def batches(self) -> AsyncGenerator[list[Record]]:
        """All records before the ends, in order per partition; uncommitted transactions included."""
        while await self._behind():
            fetched = await self._consumer.getmany(timeout_ms=POLL_MS, max_records=TOGETHER)
            batch = [
                as_record(record)
                for tp, records in fetched.items()
                for record in records
                if record.offset < self.ends[tp]
            ]
            if batch:
                yield batch

    async def _behind(self) -> bool:
        """By positions, not by records: markers of transactions take offsets, too."""
        positions = await asyncio.gather(*(self._consumer.position(tp) for tp in self.ends))
        return any(at < end for at, end in zip(positions, self.ends.values(), strict=True))


@asynccontextmanager
async def reading(
    client: dict[str, Any], topics: Sequence[str], since: Mapping[TopicPartition, int] | None = None
) -> AsyncGenerator[TopicReader]:
    """Topics by their whole names; EdenError where one is not there. `since`: offsets to begin from."""
    partitions = await all_partitions(client, topics)
    consumer: Any = AIOKafkaConsumer(**client, enable_auto_commit=False, auto_offset_reset="earliest")
    await start(consumer)
    try:
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        for tp, offset in (await consumer.beginning_offsets(partitions)).items():
            consumer.seek(tp, min(max(offset, (since or {}).get(tp, 0)), ends[tp]))
        yield TopicReader(consumer, ends)
    finally:
        await consumer.stop()


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
