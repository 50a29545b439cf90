"""The committed offsets of consumer groups: read, and set where a group has none."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka import TopicPartition
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Offset
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportUnknownVariableType]

from eden_memory.errors import EdenError
from eden_memory.kafka.coordinators import once_coordinated

SECONDS = 30
GONE = KafkaError.GROUP_ID_NOT_FOUND  # pyright: ignore


def places_in(topic: str, ends: Mapping[int, int]) -> dict[TopicPartition, int]:
    """Offsets by partition of one topic, with its whole name."""
    return {TopicPartition(topic, partition): end for partition, end in ends.items()}


async def committed(config: dict[str, Any], group: str) -> dict[TopicPartition, int]:
    """What a group has committed; empty for one that never did. `config`: librdkafka's."""
    return await asyncio.to_thread(_committed, config, group)


async def commit(
    config: dict[str, Any], group: str, ends: Mapping[TopicPartition, int], *, anew: bool = False
) -> int:
    """Set a group that nobody is in to `ends`: where it has no offset, or (`anew`) everywhere. How many were set.

    An EdenError while the group has members.
    """
    known = {} if anew else await committed(config, group)
    missing = {tp: end for tp, end in ends.items() if tp not in known}
    if missing:
        await asyncio.to_thread(_commit, config, group, missing)
    return len(missing)


def _committed(config: dict[str, Any], group: str) -> dict[TopicPartition, int]:
    admin: Any = AdminClient({**config, "log_level": 0})
    wanted = [ConsumerGroupTopicPartitions(group)]
    found: Any = once_coordinated(
        lambda: admin.list_consumer_group_offsets(wanted, request_timeout=SECONDS)[group].result(SECONDS)
    )
    return {
        TopicPartition(one.topic, one.partition): one.offset
        for one in found.topic_partitions
        if one.offset is not None and one.offset >= 0
    }


def _commit(config: dict[str, Any], group: str, ends: Mapping[TopicPartition, int]) -> None:
    admin: Any = AdminClient({**config, "log_level": 0})
    offsets = [Offset(tp.topic, tp.partition, end) for tp, end in ends.items()]
    wanted = [ConsumerGroupTopicPartitions(group, offsets)]
    try:
        done: Any = once_coordinated(
            lambda: admin.alter_consumer_group_offsets(wanted)[group].result(SECONDS)
        )
    except KafkaException as error:
        raise EdenError(
            f"the offsets of {group} cannot be set: {error.args[0].str()}",
            "Stop what reads in this group; one that was killed counts for ten seconds more.",
        ) from None
    refused = [one for one in done.topic_partitions if one.error is not None]
    if refused:
        raise EdenError(f"the offsets of {group} cannot be set: {refused[0].error.str()}")


async def members_of(config: dict[str, Any], groups: Sequence[str]) -> list[str]:
    """Those of the groups that somebody is in."""
    return await asyncio.to_thread(once_coordinated, lambda: _members_of(config, groups))


def _members_of(config: dict[str, Any], groups: Sequence[str]) -> list[str]:
    admin: Any = AdminClient({**config, "log_level": 0})
    found: list[str] = []
    for group, asked in admin.describe_consumer_groups(list(groups), request_timeout=SECONDS).items():
        try:
            if asked.result(SECONDS).members:
                found.append(group)
        except KafkaException as error:
            if error.args[0].code() != GONE:
                raise
    return found
