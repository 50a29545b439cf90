"""How far consumer groups and topics are, and the removal of records that everyone has consumed."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiokafka import TopicPartition

from eden_memory.housekeeping.consumption import Offsets, Partition
from eden_memory.kafka.group_admin import GroupAdmin
from eden_memory.kafka.topic_admin import TopicAdmin
from eden_memory.kafka.topic_reading import TopicOffsets


@dataclass(frozen=True, slots=True)
class ConsumedTopics:
    """Topics and groups of a broker."""

    client: dict[str, Any]
    """Connection arguments of aiokafka."""
    groups: GroupAdmin
    topics: TopicAdmin

    async def committed(self, group: str) -> Offsets:
        """Return the offsets that a group has committed."""
        return _by_place(await self.groups.committed(group))

    async def ends(self, topics: Sequence[str]) -> Offsets:
        """Return the end of every partition of the topics that exist."""
        async with TopicOffsets(self.client, topics) as offsets:
            return _by_place(await offsets.ends())

    async def remove(self, records: Mapping[Partition, int]) -> None:
        """Remove the records below these offsets."""
        if records:
            await asyncio.to_thread(self.topics.remove_records, records)


def _by_place(offsets: Mapping[TopicPartition, int]) -> Offsets:
    return {(tp.topic, tp.partition): offset for tp, offset in offsets.items()}


@asynccontextmanager
async def consumed_topics(client: dict[str, Any], admin: Mapping[str, Any]) -> AsyncGenerator[ConsumedTopics]:
    """Connect for the block; `client`: connection arguments of aiokafka, `admin`: of librdkafka."""
    async with GroupAdmin(client) as groups:
        yield ConsumedTopics(client, groups, TopicAdmin(admin))
