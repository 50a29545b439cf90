"""Partitions and offsets: where topics begin and end, and what consumer groups have committed."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from eden_memory.errors import EdenError
from eden_memory.kafka.connection import start


class TopicOffsets:
    """The ends of topics and what groups have committed of them; one connection each, in no group.

    A transaction marker takes an offset too: on `chat.messages` a reader at its end may show a lag of one a
    partition until it commits again.
    """

    def __init__(self, client: dict[str, Any], topics: Sequence[str]) -> None:
        """`client`: connection arguments of aiokafka; `topics` by their full names, those that exist count."""
        self._topics = topics
        self.admin: Any = AIOKafkaAdminClient(**client)
        self._consumer: Any = AIOKafkaConsumer(**client, enable_auto_commit=False)
        self.partitions: list[TopicPartition] = []

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def connect(self) -> None:
        """Connect, and find the partitions; a KafkaConnectionError where no broker answers."""
        try:
            await start(self.admin)
            await start(self._consumer)
            await self.find_partitions()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Disconnect."""
        await asyncio.gather(self._consumer.stop(), self.admin.close(), return_exceptions=True)

    async def find_partitions(self) -> None:
        """Find topics and partitions that are new."""
        self.partitions = await partitions_of(self.admin, self._topics)

    async def begins(self) -> dict[TopicPartition, int]:
        """The first offset of each partition that the broker still holds."""
        return await self._consumer.beginning_offsets(self.partitions) if self.partitions else {}

    async def ends(self) -> dict[TopicPartition, int]:
        """The offset behind the last record of each partition."""
        return await self._consumer.end_offsets(self.partitions) if self.partitions else {}

    async def committed(self, group: str, coordinator: int | None = None) -> dict[TopicPartition, int]:
        """Return a group's committed offsets; partitions without a commit are left out.

        `coordinator`: its node, where that is known.
        """
        found = await committed_by(self.admin, group, coordinator)
        return {tp: found[tp] for tp in self.partitions if tp in found}


async def committed_by(admin: Any, group: str, coordinator: int | None = None) -> dict[TopicPartition, int]:
    """Return a group's committed offsets of any topic; `admin` is a started AIOKafkaAdminClient."""
    found = await admin.list_consumer_group_offsets(group, coordinator)
    return {tp: committed.offset for tp, committed in found.items() if committed.offset >= 0}


async def partitions_of(admin: Any, topics: Sequence[str]) -> list[TopicPartition]:
    """Every partition of the topics that exist, in order; `admin` is a started AIOKafkaAdminClient."""
    existing = set(await admin.list_topics())
    wanted = [topic for topic in topics if topic in existing]
    described: list[dict[str, Any]] = await admin.describe_topics(wanted) if wanted else []
    return sorted(
        TopicPartition(topic["topic"], partition["partition"])
        for topic in described
        for partition in topic["partitions"]
    )


async def partitions_asked(client: dict[str, Any], topics: Sequence[str]) -> list[TopicPartition]:
    """As `partitions_of`, over a connection of its own."""
    admin: Any = AIOKafkaAdminClient(**client)
    try:
        await start(admin)
        return await partitions_of(admin, topics)
    finally:
        await admin.close()


async def partitions_there(client: dict[str, Any], topic: str) -> list[TopicPartition]:
    """Every partition of one topic; an EdenError where there is no such topic."""
    found = await partitions_asked(client, [topic])
    if not found:
        raise EdenError(f"there is no topic {topic} on this broker", "`eden topics apply` creates ours.")
    return found


def places_in(topic: str, ends: Mapping[int, int]) -> dict[TopicPartition, int]:
    """Offsets by partition of one topic, with its whole name."""
    return {TopicPartition(topic, partition): end for partition, end in ends.items()}
