"""Which partitions topics have, as the brokers say."""

from collections.abc import Sequence
from typing import Any

from aiokafka import TopicPartition


async def partitions_of(admin: Any, topics: Sequence[str]) -> list[TopicPartition]:
    """Every partition of the topics that exist, in order; `admin` is a started AIOKafkaAdminClient."""
    existing = set(await admin.list_topics())
    wanted = [topic for topic in topics if topic in existing]
    described: list[dict[str, Any]] = await admin.describe_topics(wanted) if wanted else []
    found = [(topic["topic"], one["partition"]) for topic in described for one in topic["partitions"]]
    return [TopicPartition(*one) for one in sorted(found)]
