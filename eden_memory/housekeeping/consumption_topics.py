"""How far consumer groups and topics are, and the removal of records that everyone has consumed."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from eden_memory.housekeeping.consumption import Offsets, Partition
from eden_memory.kafka.connection import start
from eden_memory.kafka.offsets import committed_by, partitions_of
from eden_memory.kafka.topic_reading import consuming


class ConsumedTopics:
    """Topics and groups of a broker; `admin` is a started AIOKafkaAdminClient."""

    def __init__(self, client: dict[str, Any], admin: Any) -> None:
        self._client, self._admin = client, admin

    async def committed(self, group: str) -> Offsets:
        """Return the offsets that a group has committed."""
        return _by_place(await committed_by(self._admin, group))

    async def ends(self, topics: Sequence[str]) -> Offsets:
        """Return the end of every partition of the topics that exist."""
        partitions = await partitions_of(self._admin, topics)
        if not partitions:
            return {}
        async with consuming(self._client, partitions) as consumer:
            return _by_place(await consumer.end_offsets(partitions))

    async def remove(self, records: Mapping[Partition, int]) -> None:
        """Remove the records below these offsets."""
        if records:
            await self._admin.delete_records(
                {
                    TopicPartition(*partition): RecordsToDelete(before_offset=offset)
                    for partition, offset in records.items()
                }
            )


def _by_place(offsets: Mapping[TopicPartition, int]) -> Offsets:
    return {(tp.topic, tp.partition): offset for tp, offset in offsets.items()}


@asynccontextmanager
async def consumed_topics(client: dict[str, Any]) -> AsyncGenerator[ConsumedTopics]:
    """Connect for the block; KafkaError where no broker answers."""
    admin: Any = AIOKafkaAdminClient(**client)
    await start(admin)
    try:
        yield ConsumedTopics(client, admin)
    finally:
        await admin.close()
