"""Which partitions topics have, as the brokers say."""

from collections.abc import Sequence
from typing import Any

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from eden_memory.errors import EdenError
from eden_memory.kafka.connection import start


async def partitions_of(admin: Any, topics: Sequence[str]) -> list[TopicPartition]:
    """Every partition of the topics that exist, in order; `admin` is a started AIOKafkaAdminClient."""
    existing = set(await admin.list_topics())
    wanted = [topic for topic in topics if topic in existing]
    described: list[dict[str, Any]] = await admin.describe_topics(wanted) if wanted else []
    found = [(topic["topic"], one["partition"]) for topic in described for one in topic["partitions"]]
    return [TopicPartition(*one) for one in sorted(found)]


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
