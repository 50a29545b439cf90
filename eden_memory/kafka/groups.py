"""Consumer groups: their names, offsets and members, and how far they are behind, in records and in seconds."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from eden_memory.kafka.broken_clients import close_consumer, starting
from eden_memory.kafka.connection import start
from eden_memory.kafka.topic_reading import TopicOffsets, new_reader
from eden_memory.tasks import all_of

PAUSE_SECONDS = 0.2
LONGEST_SECONDS = 20.0
"""Seconds for which a coordinator that cannot answer yet is asked again."""
NOT_YET = (GroupCoordinatorNotAvailableError, GroupLoadInProgressError, NotCoordinatorForGroupError)
NO_GENERATION = -1
"""Commits of a group that has no members."""
Codes = Callable[[Any], Sequence[int]]


Place = tuple[TopicPartition, int]
LOOK_SECONDS = 15.0
"""Seconds between two searches for new partitions and groups; groups are then asked even if no topic has moved."""
ALIEN_SECONDS = 120.0
"""Seconds after which a group that reads none of our topics is asked again."""
ROUND_SECONDS = 1.0
"""Seconds to wait for a first unread record; one that does not arrive is read the next time."""
FETCH_BYTES = 4_096


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


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The lag of one group on one partition; `seconds` is None if it is not known this time."""

    group: str
    tp: TopicPartition
    committed: int | None
    lag: int
    seconds: float | None


@dataclass(frozen=True, slots=True)
class LagReading:
    """Offsets, lags and members of all groups at one moment."""

    at: float
    """Seconds since the epoch."""
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    groups: Sequence[GroupLag]
    members: Mapping[str, int]
    """Group → consumers in it."""


async def lags(
    offsets: TopicOffsets, admin: GroupAdmin, groups: Mapping[str, Sequence[str]]
) -> dict[str, int]:
    """Group → records between what it has committed and the ends; from the start for one without commits.

    `groups` are group → full names of the topics that it reads.
    """
    await offsets.find_partitions()
    ends, begins = await offsets.ends(), await offsets.begins()
    found: dict[str, int] = {}
    for group, topics in groups.items():
        committed = await admin.committed(group)
        found[group] = sum(
            max(0, ends[tp] - max(committed.get(tp, 0), begins[tp])) for tp in ends if tp.topic in topics
        )
    return found


class LagReader:
    """Two consumers and an admin connection; `declared` are group → full names of the topics that it reads."""

    def __init__(
        self,
        kafka: KafkaArguments,
        topics: Sequence[str],
        declared: Mapping[str, Sequence[str]],
    ) -> None:
        self._declared = declared
        self._offsets, self._admin = TopicOffsets(kafka, topics), GroupAdmin(kafka)
        self._unread = FirstUnread(kafka)
        self._others: set[str] = set()
        self._aliens: dict[str, float] = {}
        self._looked = -LOOK_SECONDS
        self._last: LagReading | None = None

    async def start(self) -> None:
        """Connect."""
        await self._offsets.connect()
        await self._admin.connect()
        await self._unread.start()

    async def close(self) -> None:
        """Disconnect."""
        closing = self._offsets.close(), self._unread.stop(), self._admin.close()
        await asyncio.gather(*closing, return_exceptions=True)

    async def read(self) -> LagReading:
        """Read everything; a KafkaError where a broker does not answer.

        Between two looks, beginnings are not asked for, and neither are groups that were at the ends of topics
        which have not moved since.
        """
        await self._look()
        at = time.time()
        ends = await self._offsets.ends()
        last = self._last or LagReading(at, await self._offsets.begins(), {}, (), {})
        asked = sorted(self._groups() if self._last is None else self._unsettled(last, ends))
        self._last = await self._asked(at, last, ends, asked) if asked else replace(last, ends=ends)
        return replace(self._last, at=at)

    def _groups(self) -> set[str]:
        return {*self._declared, *self._others}

    def _unsettled(self, last: LagReading, ends: Mapping[TopicPartition, int]) -> set[str]:
        """Return the groups that were behind, or read a topic that has moved."""
        moved = {tp.topic for tp, end in ends.items() if last.ends.get(tp) != end}
        reading = {row.group for row in last.groups if row.lag or row.tp.topic in moved}
        return reading | {name for name, topics in self._declared.items() if moved.intersection(topics)}

    async def _asked(
        self, at: float, last: LagReading, ends: Mapping[TopicPartition, int], names: Sequence[str]
    ) -> LagReading:
        """Return the last reading with these groups read anew."""
        starts, committed = last.starts, await self._committed(names)
        rows = [row for name in names for row in self._rows(name, committed[name], starts, ends)]
        behind = {(tp, offset): ends[tp] for _, tp, offset in rows if offset < ends[tp]}
        since = await self._unread.times(behind)
        found = [
            GroupLag(
                name,
                tp,
                offset if tp in committed[name] else None,
                max(0, ends[tp] - offset),
                _seconds(since, tp, offset, at) if offset < ends[tp] else 0.0,
            )
            for name, tp, offset in rows
        ]
        settled = [row for row in last.groups if row.group not in committed]
        unknown = [name for name in names if name not in last.members]  # after a look, all
        members = {**last.members, **await self._admin.members(unknown)}
        return LagReading(at, starts, ends, [*settled, *found], members)

    def _rows(
        self,
        group: str,
        committed: Mapping[TopicPartition, int],
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> list[tuple[str, TopicPartition, int]]:
        """The offset of a group in each partition that it reads; a declared group without commits is at the start."""
        read = self._declared.get(group, ())
        return [
            (group, tp, max(committed.get(tp, 0), starts[tp]))
            for tp in ends
            if tp in committed or tp.topic in read
        ]

    async def _look(self) -> None:
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        self._last = None
        await self._offsets.find_partitions()
        listed = await self._admin.names()
        self._others &= listed
        now = time.monotonic()
        new = [
            name
            for name in sorted(listed - self._others - set(self._declared))
            if self._aliens.get(name, 0.0) <= now
        ]
        ours = set(self._offsets.partitions)
        for name, committed in (await self._committed(new)).items():
            if ours & committed.keys():
                self._others.add(name)
            else:
                self._aliens[name] = now + ALIEN_SECONDS
        self._looked = time.monotonic()

    async def _committed(self, groups: Sequence[str]) -> dict[str, Mapping[TopicPartition, int]]:
        return dict(zip(groups, await all_of(*map(self._admin.committed, groups)), strict=True))


class FirstUnread:
    """Reads when the first record from an offset on came into its partition; kept while nothing moves.

    A consumer without a group. A transaction marker takes an offset and is no record: nothing may be there.
    """

    def __init__(self, kafka: KafkaArguments) -> None:
        options = {"max_partition_fetch_bytes": FETCH_BYTES, "fetch_max_wait_ms": 50}
        self._consumer = new_reader({**kafka, **options})
        self._known: dict[Place, float] = {}
        self._nothing: dict[Place, int] = {}
        """Places behind which there was no record up to this end."""

    async def start(self) -> None:
        """Connect."""
        await start(self._consumer)

    async def stop(self) -> None:
        """Disconnect."""
        await close_consumer(self._consumer)

    async def times(self, places: Mapping[Place, int]) -> Mapping[Place, float | None]:
        """Place → seconds since the epoch (None: no record up to the end given); unknown ones are left out."""
        self._known = {place: at for place, at in self._known.items() if place in places}
        self._nothing = {place: end for place, end in self._nothing.items() if places.get(place) == end}
        wanted = [place for place in places if place not in self._known and place not in self._nothing]
        until = time.monotonic() + ROUND_SECONDS
        while wanted and time.monotonic() < until:
            now = _one_of_each(wanted)
            await self._read(now, places, until)
            wanted = [place for place in wanted if place[0] not in now or now[place[0]] != place[1]]
        return {**self._known, **dict.fromkeys(self._nothing)}

    async def _read(
        self, offsets: dict[TopicPartition, int], ends: Mapping[Place, int], until: float
    ) -> None:
        """One offset of each partition."""
        self._consumer.assign(list(offsets))
        for tp, offset in offsets.items():
            self._consumer.seek(tp, offset)
        left = dict(offsets)
        while left and time.monotonic() < until:
            for tp, records in (await self._consumer.getmany(*left, timeout_ms=100)).items():
                if records:
                    self._known[tp, left.pop(tp)] = records[0].timestamp / 1_000
                    self._consumer.pause(tp)
            for tp, offset in list(left.items()):
                if await self._consumer.position(tp) >= ends[tp, offset]:
                    self._nothing[tp, left.pop(tp)] = ends[tp, offset]


def _one_of_each(places: Sequence[Place]) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for tp, offset in places:
        found.setdefault(tp, offset)
    return found


def _seconds(since: Mapping[Place, float | None], tp: TopicPartition, offset: int, at: float) -> float | None:
    if (tp, offset) not in since:
        return None
    first = since[tp, offset]
    return 0.0 if first is None else max(0.0, at - first)
