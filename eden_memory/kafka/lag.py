"""How far the consumer groups are behind, in records."""

from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from eden_memory.kafka.connection import start
from eden_memory.kafka.partitions import partitions_of


class Lag:
    """Reads committed offsets and ends; one connection each, kept for the block.

    `groups` are group → full names of the topics that it reads. A transaction marker takes an offset too: on
    `chat.messages` a reader at its end may show a lag of one a partition until it commits again.
    """

    def __init__(self, client: dict[str, Any], groups: Mapping[str, Sequence[str]]) -> None:
        self._groups = groups
        self._admin: Any = AIOKafkaAdminClient(**client)
        self._consumer: Any = AIOKafkaConsumer(**client, enable_auto_commit=False)

    async def __aenter__(self) -> "Lag":
        try:
            await start(self._admin)
            await start(self._consumer)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.stop()
        await self._admin.close()

    async def read(self) -> dict[str, int]:
        """Group → records between what it has committed and the ends; from the start for one without commits."""
        topics = sorted({topic for read in self._groups.values() for topic in read})
        partitions = await partitions_of(self._admin, topics)
        ends = await self._consumer.end_offsets(partitions)
        starts = await self._consumer.beginning_offsets(partitions)
        lags: dict[str, int] = {}
        for group, read in self._groups.items():
            committed = await self._admin.list_consumer_group_offsets(group)
            lags[group] = sum(
                max(0, ends[tp] - _position(committed, tp, starts[tp]))
                for tp in partitions
                if tp.topic in read
            )
        return lags


def _position(committed: Mapping[TopicPartition, Any], tp: TopicPartition, start: int) -> int:
    found = committed.get(tp)
    return start if found is None or found.offset < 0 else max(found.offset, start)
