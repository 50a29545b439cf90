"""Consumer groups: their names, offsets and members.

docs/decisions/kafka.md says why this uses aiokafka and not librdkafka.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, Self

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    GroupIdNotFound,
    GroupLoadInProgressError,
    KafkaError,
    NonEmptyGroup,
    NotCoordinatorForGroupError,
    for_code,
)
from aiokafka.protocol.admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest

from eden_memory.errors import EdenError
from eden_memory.kafka import KafkaArguments
from eden_memory.kafka.broken_clients import starting
from eden_memory.tasks import all_of

PAUSE_SECONDS = 0.2
LONGEST_SECONDS = 20.0
"""Seconds for which a coordinator that cannot answer yet is asked again."""
NOT_YET = (GroupCoordinatorNotAvailableError, GroupLoadInProgressError, NotCoordinatorForGroupError)
NO_GENERATION = -1
"""Commits of a group that has no members."""
Codes = Callable[[Any], Sequence[int]]


class GroupAdmin:
    """The groups of a cluster, over one connection; calls raise KafkaError."""

    def __init__(self, kafka: KafkaArguments) -> None:
        self._kafka: Any = AIOKafkaClient(**kafka)
        self._coordinators: dict[str, int] = {}

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def connect(self) -> None:
        """Connect; a KafkaConnectionError where no broker answers."""
        try:
            with starting():
                await self._kafka.bootstrap()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Disconnect."""
        await self._kafka.close()

    async def names(self) -> set[str]:
        """Return the names of all groups."""
        brokers = [broker.nodeId for broker in (await self._kafka.fetch_all_metadata()).brokers()]
        answers = [await self._kafka.send(broker, ListGroupsRequest()) for broker in brokers]
        for answer in answers:
            _raise_first([answer.error_code], "the brokers' groups")
        return {group for answer in answers for group, *_ in answer.groups}

    async def committed(self, group: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group; empty for one that never committed."""
        answer = await self._ask(group, OffsetFetchRequest(group, None), _codes_of_offsets)
        return {
            TopicPartition(topic, number): offset
            for topic, partitions in answer.topics
            for number, offset, *_ in partitions
            if offset >= 0
        }

    async def commit(self, group: str, ends: Mapping[TopicPartition, int], *, anew: bool = False) -> int:
        """Set the offsets of a group without members to `ends`; return how many were set.

        Only partitions without an offset are set, or all of them with `anew`. EdenError while the group has members.
        """
        known = {} if anew else await self.committed(group)
        missing = {tp: end for tp, end in ends.items() if tp not in known}
        if missing:
            topics: dict[str, list[tuple[int, int, str]]] = {}
            for tp, end in missing.items():
                topics.setdefault(tp.topic, []).append((tp.partition, end, ""))
            request = OffsetCommitRequest(group, NO_GENERATION, "", -1, list(topics.items()))
            try:
                await self._ask(group, request, _codes_of_topics)
            except KafkaError as error:
                raise EdenError(
                    f"the offsets of {group} cannot be set: {type(error).__name__}",
                    "Stop what reads in this group; one that was killed counts for ten seconds more.",
                ) from error
        return len(missing)

    async def members(self, groups: Sequence[str]) -> dict[str, int]:
        """Return how many consumers are in each group."""
        return dict(zip(groups, await all_of(*map(self._members, groups)), strict=True))

    async def _members(self, group: str) -> int:
        """Ask for one group per request: aiokafka 0.14 misreads answers about several groups."""
        try:
            answer = await self._ask(group, DescribeGroupsRequest([group]), _codes_of_groups)
        except GroupIdNotFound:
            return 0
        return len(answer.groups[0][5])

    async def remove(self, group: str) -> None:
        """Remove a group with its offsets if it exists; EdenError while it has members."""
        try:
            await self._ask(group, DeleteGroupsRequest([group]), _codes_of_removals)
        except NonEmptyGroup:
            raise EdenError(
                f"{group} is reading: the namespace is being filled",
                "Stop `eden rebuild` first; one that was killed counts for ten seconds more.",
            ) from None
        except GroupIdNotFound:
            return

    async def _ask(self, group: str, request: Any, codes: Codes) -> Any:
        """Send a request to a group's coordinator, and repeat it while the coordinator cannot answer yet."""
        until = monotonic() + LONGEST_SECONDS
        while True:
            try:
                answer = await self._kafka.send(await self._coordinator(group), request)
                _raise_first(codes(answer), group)
                return answer
            except KafkaError as error:
                self._coordinators.pop(group, None)
                if not isinstance(error, NOT_YET) or monotonic() > until:
                    raise
            await asyncio.sleep(PAUSE_SECONDS)

    async def _coordinator(self, group: str) -> int:
        if group not in self._coordinators:
            self._coordinators[group] = await self._kafka.coordinator_lookup(CoordinationType.GROUP, group)
        return self._coordinators[group]


def _raise_first(codes: Sequence[int], what: str) -> None:
    for code in filter(None, codes):
        raise for_code(code)(f"Kafka refused a request about {what}")


def _codes_of_offsets(answer: Any) -> list[int]:
    """From version 2 on, one error code is given for the whole group."""
    whole = getattr(answer, "error_code", 0)
    return [whole, *(partition[3] for _, partitions in answer.topics for partition in partitions)]


def _codes_of_topics(answer: Any) -> list[int]:
    return [code for _, partitions in answer.topics for _, code in partitions]


def _codes_of_groups(answer: Any) -> list[int]:
    return [group[0] for group in answer.groups]


def _codes_of_removals(answer: Any) -> list[int]:
    return [code for _, code in answer.results]
