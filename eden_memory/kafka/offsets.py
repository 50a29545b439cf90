"""Partitions, offsets and groups: where topics begin and end, and what consumer groups have committed.

aiokafka reads; librdkafka (`config`: `admin_config`) sets the offsets of groups that nobody is in.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Offset
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportUnknownVariableType]

from eden_memory.errors import EdenError
from eden_memory.kafka.connection import start

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
