"""Where the memory topics begin and end, and where a group that reads them is."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportUnknownVariableType]

from eden_memory.errors import EdenError
from eden_memory.kafka.connection import start
from eden_memory.kafka.offsets import once_coordinated, partitions_of
from eden_memory.schemas.documents import Place

GONE = KafkaError.GROUP_ID_NOT_FOUND  # pyright: ignore
IN_USE = KafkaError.NON_EMPTY_GROUP  # pyright: ignore


class Places:
    """One admin connection and one consumer, without a group."""

    def __init__(self, client: dict[str, Any], topics: Sequence[str], group: str) -> None:
        self._topics, self._group = topics, group
        self._admin: Any = AIOKafkaAdminClient(**client)
        self._consumer: Any = AIOKafkaConsumer(**client, enable_auto_commit=False)
        self._partitions: list[TopicPartition] = []

    async def __aenter__(self) -> "Places":
        """Connect; the partitions of compacted topics never change."""
        try:
            await start(self._admin)
            await start(self._consumer)
            self._partitions = await partitions_of(self._admin, self._topics)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect."""
        await asyncio.gather(self._consumer.stop(), self._admin.close(), return_exceptions=True)

    async def all(self) -> tuple[Place, ...]:
        """Every partition from its beginning to its end now."""
        begins = await self._consumer.beginning_offsets(self._partitions)
        ends = await self.ends()
        return tuple(
            Place(topic=tp.topic, partition=tp.partition, begin=begins[tp], end=end, reached=begins[tp])
            for tp, end in ends.items()
        )

    async def ends(self) -> Mapping[TopicPartition, int]:
        """The offset behind the last record of each partition."""
        return await self._consumer.end_offsets(self._partitions)

    async def reached(self) -> Mapping[TopicPartition, int]:
        """What the group has committed; partitions without a commit are left out."""
        coordinator = await self._admin.find_coordinator(self._group)
        found = await self._admin.list_consumer_group_offsets(self._group, coordinator)
        return {tp: one.offset for tp, one in found.items() if one.offset >= 0}


def passed(places: Sequence[Place], reached: Mapping[TopicPartition, int]) -> tuple[Place, ...]:
    """The places with what a group has reached since."""
    return tuple(
        one.model_copy(
            update={"reached": max(one.reached, reached.get(TopicPartition(one.topic, one.partition), 0))}
        )
        for one in places
    )


def behind(
    reached: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], begun: Sequence[Place]
) -> int:
    """Offsets up to `ends` that are still to be read; an empty partition needs no commit."""
    begins = {TopicPartition(one.topic, one.partition): one.begin for one in begun}
    return sum(max(0, end - reached.get(tp, begins.get(tp, 0))) for tp, end in ends.items())


def remove_group(config: dict[str, Any], group: str) -> None:
    """Remove a consumer group with its offsets; an EdenError while somebody is in it. Blocking."""
    admin: Any = AdminClient({**config, "log_level": 0})
    try:
        once_coordinated(lambda: admin.delete_consumer_groups([group], request_timeout=30)[group].result(30))
    except KafkaException as error:
        code = error.args[0].code()
        if code == IN_USE:
            raise EdenError(
                f"{group} is reading: the namespace is being filled",
                "Stop `eden rebuild` first; one that was killed counts for ten seconds more.",
            ) from None
        if code != GONE:
            raise
