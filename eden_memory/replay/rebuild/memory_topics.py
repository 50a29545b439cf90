"""Where the memory topics begin and end, and where a group that reads them is."""

from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka import TopicPartition
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportUnknownVariableType]

from eden_memory.errors import EdenError
from eden_memory.kafka.offsets import TopicOffsets, once_coordinated
from eden_memory.schemas.documents import Place

GONE = KafkaError.GROUP_ID_NOT_FOUND  # pyright: ignore
IN_USE = KafkaError.NON_EMPTY_GROUP  # pyright: ignore


class Places(TopicOffsets):
    """The memory topics, and the group that reads them; their partitions never change."""

    def __init__(self, client: dict[str, Any], topics: Sequence[str], group: str) -> None:
        super().__init__(client, topics)
        self._group = group

    async def all(self) -> tuple[Place, ...]:
        """Every partition from its beginning to its end now."""
        begins = await self.begins()
        ends = await self.ends()
        return tuple(
            Place(topic=tp.topic, partition=tp.partition, begin=begins[tp], end=end, reached=begins[tp])
            for tp, end in ends.items()
        )

    async def reached(self) -> Mapping[TopicPartition, int]:
        """Return the group's committed offsets; partitions without a commit are left out."""
        return await self.committed(self._group)


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
