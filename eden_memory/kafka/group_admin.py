"""Consumer groups over librdkafka (`config`: `admin_config`): their offsets and members."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from aiokafka import TopicPartition
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Offset
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportUnknownVariableType]

from eden_memory.errors import EdenError

T = TypeVar("T")
SECONDS = 30
GONE = KafkaError.GROUP_ID_NOT_FOUND  # pyright: ignore
PAUSE_SECONDS = 0.2
LONGEST_SECONDS = 20.0
"""A coordinator that cannot answer yet is asked again for so long."""
NOT_YET = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,  # pyright: ignore
    KafkaError.COORDINATOR_NOT_AVAILABLE,  # pyright: ignore
    KafkaError.NOT_COORDINATOR,  # pyright: ignore
)


async def committed(config: dict[str, Any], group: str) -> dict[TopicPartition, int]:
    """Committed offsets of a group; empty for one that never committed. `config`: librdkafka's."""
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
        TopicPartition(found_at.topic, found_at.partition): found_at.offset
        for found_at in found.topic_partitions
        if found_at.offset is not None and found_at.offset >= 0
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
    refused = [offset for offset in done.topic_partitions if offset.error is not None]
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


def once_coordinated(ask: Callable[[], T], seconds: float = LONGEST_SECONDS) -> T:
    """Return what `ask` returns, repeated while the group's coordinator cannot answer yet; KafkaException. Blocking.

    A coordinator cannot answer while its broker has just started, or while the group moves.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in NOT_YET or time.monotonic() > until:
                raise
        time.sleep(PAUSE_SECONDS)
