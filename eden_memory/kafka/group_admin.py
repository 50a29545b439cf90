"""Consumer groups over librdkafka: which there are, their offsets and their members."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from time import monotonic
from typing import Any, Self

from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError, KafkaError, for_code
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import TopicPartition as Offset
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportUnknownVariableType]

from eden_memory.errors import EdenError

SECONDS = 30
PAUSE_SECONDS = 0.2
LONGEST_SECONDS = 20.0
"""A coordinator that cannot answer yet is asked again for so long."""
GONE = LibraryError.GROUP_ID_NOT_FOUND  # pyright: ignore
IN_USE = LibraryError.NON_EMPTY_GROUP  # pyright: ignore
NOT_YET = (
    LibraryError.COORDINATOR_LOAD_IN_PROGRESS,  # pyright: ignore
    LibraryError.COORDINATOR_NOT_AVAILABLE,  # pyright: ignore
    LibraryError.NOT_COORDINATOR,  # pyright: ignore
)
Ask = Callable[[Any], "Future[Any]"]


class GroupAdmin:
    """The groups of a cluster. Calls raise aiokafka's KafkaError; `config` is librdkafka's (`admin_config`)."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = {**config, "log_level": 0}
        self._client: Any = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Disconnect; librdkafka waits for its threads meanwhile."""
        await asyncio.to_thread(setattr, self, "_client", None)

    async def names(self) -> set[str]:
        """Return the names of all groups."""
        found = await self._answer(lambda admin: admin.list_consumer_groups(request_timeout=SECONDS))
        if found.errors:
            raise _known(found.errors[0])
        return {listed.group_id for listed in found.valid}

    async def committed(self, group: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group; empty for one that never committed."""
        wanted = [ConsumerGroupTopicPartitions(group)]
        found = await self._answer(
            lambda admin: admin.list_consumer_group_offsets(wanted, request_timeout=SECONDS)[group]
        )
        return {
            TopicPartition(found_at.topic, found_at.partition): found_at.offset
            for found_at in found.topic_partitions
            if found_at.offset is not None and found_at.offset >= 0
        }

    async def commit(self, group: str, ends: Mapping[TopicPartition, int], *, anew: bool = False) -> int:
        """Set a group that nobody is in to `ends`: where it has no offset, or (`anew`) everywhere. How many were set.

        An EdenError while the group has members.
        """
        known = {} if anew else await self.committed(group)
        missing = [Offset(tp.topic, tp.partition, end) for tp, end in ends.items() if tp not in known]
        if missing:
            await self._commit(group, missing)
        return len(missing)

    async def _commit(self, group: str, offsets: Sequence[Offset]) -> None:
        wanted = [ConsumerGroupTopicPartitions(group, list(offsets))]
        try:
            done = await self._answer(lambda admin: admin.alter_consumer_group_offsets(wanted)[group])
        except KafkaError as error:
            raise EdenError(
                f"the offsets of {group} cannot be set: {error.args[0]}",
                "Stop what reads in this group; one that was killed counts for ten seconds more.",
            ) from None
        refused = [offset for offset in done.topic_partitions if offset.error is not None]
        if refused:
            raise EdenError(f"the offsets of {group} cannot be set: {refused[0].error.str()}")

    async def members(self, groups: Sequence[str]) -> dict[str, int]:
        """Return how many consumers are in each group."""
        return dict(zip(groups, await asyncio.gather(*map(self._members, groups)), strict=True))

    async def _members(self, group: str) -> int:
        try:
            found = await self._answer(
                lambda admin: admin.describe_consumer_groups([group], request_timeout=SECONDS)[group]
            )
        except KafkaError as error:
            if error.errno == GONE:
                return 0
            raise
        return len(found.members)

    async def remove(self, group: str) -> None:
        """Remove a group with its offsets, if it is there; EdenError while it has members."""
        try:
            await self._answer(
                lambda admin: admin.delete_consumer_groups([group], request_timeout=SECONDS)[group]
            )
        except KafkaError as error:
            if error.errno == IN_USE:
                raise EdenError(
                    f"{group} is reading: the namespace is being filled",
                    "Stop `eden rebuild` first; one that was killed counts for ten seconds more.",
                ) from None
            if error.errno != GONE:
                raise

    async def _answer(self, ask: Ask) -> Any:
        """Ask again while the group's coordinator cannot answer: its broker has just started, or the group moves."""
        until = monotonic() + LONGEST_SECONDS
        while True:
            try:
                return await asyncio.wrap_future(ask(self._connected()))
            except KafkaException as error:
                if error.args[0].code() not in NOT_YET or monotonic() > until:
                    raise _known(error) from None
            await asyncio.sleep(PAUSE_SECONDS)

    def _connected(self) -> Any:
        if self._client is None:
            self._client = AdminClient(self._config)
        return self._client


def _known(error: KafkaException) -> KafkaError:
    """Return aiokafka's error for librdkafka's; codes below zero are its own: no broker answers."""
    said: LibraryError = error.args[0]
    kind: type[KafkaError] = KafkaConnectionError if said.code() < 0 else for_code(said.code())
    return kind(said.str())
