"""Committed offsets, ends, and since when the first unread record waits, of every group on our topics."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from eden_memory.kafka.connection import start
from eden_memory.kafka.first_unread import FirstUnread
from eden_memory.kafka.partitions import partitions_of

LOOK_SECONDS = 15.0
"""How often partitions and groups that are new are looked for."""
ALIEN_SECONDS = 120.0
"""A group that reads none of our topics is asked again after so long."""
AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class GroupLag:
    """One group on one partition; `seconds` None: not known this time."""

    group: str
    tp: TopicPartition
    committed: int | None
    lag: int
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Reading:
    """All of it, at one moment."""

    at: float
    """Seconds since the epoch."""
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    groups: Sequence[GroupLag]
    members: Mapping[str, int]
    """Group → consumers in it."""


class LagReader:
    """One admin connection and two consumers; `declared` are group → full names of the topics that it reads."""

    def __init__(
        self, client: dict[str, Any], topics: Sequence[str], declared: Mapping[str, Sequence[str]]
    ) -> None:
        self._topics, self._declared = topics, declared
        self._admin: Any = AIOKafkaAdminClient(**client)
        self._consumer: Any = AIOKafkaConsumer(**client, enable_auto_commit=False)
        self._unread = FirstUnread(client)
        self._partitions: list[TopicPartition] = []
        self._coordinators: dict[str, int] = {}
        self._others: set[str] = set()
        self._aliens: dict[str, float] = {}
        self._looked = -LOOK_SECONDS

    async def start(self) -> None:
        """Connect."""
        await start(self._admin)
        await start(self._consumer)
        await self._unread.start()

    async def close(self) -> None:
        """Disconnect."""
        await asyncio.gather(
            self._consumer.stop(), self._unread.stop(), self._admin.close(), return_exceptions=True
        )

    async def read(self) -> Reading:
        """A KafkaError where a broker does not answer."""
        await self._look()
        at = time.time()
        ends = await self._consumer.end_offsets(self._partitions)
        starts = await self._consumer.beginning_offsets(self._partitions)
        names = sorted({*self._declared, *self._others})
        committed = dict(zip(names, await self._all(names), strict=True))
        rows = [row for name in names for row in self._rows(name, committed[name], starts, ends)]
        behind = {(tp, offset): ends[tp] for _, tp, offset in rows if offset < ends[tp]}
        since = await self._unread.times(behind)
        lags = [
            GroupLag(
                name,
                tp,
                offset if tp in committed[name] else None,
                max(0, ends[tp] - offset),
                _seconds(since, tp, offset, at) if offset < ends[tp] else 0.0,
            )
            for name, tp, offset in rows
        ]
        return Reading(at, starts, ends, lags, await self._members(names))

    def _rows(
        self,
        group: str,
        committed: Mapping[TopicPartition, int],
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> list[tuple[str, TopicPartition, int]]:
        """Where a group stands in each partition that it reads; a declared one without commits at the start."""
        read = self._declared.get(group, ())
        return [
            (group, tp, max(committed.get(tp, 0), starts[tp]))
            for tp in ends
            if tp in committed or tp.topic in read
        ]

    async def _look(self) -> None:
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        self._partitions = await partitions_of(self._admin, self._topics)
        listed = {name for name, *_ in await self._admin.list_consumer_groups()}
        self._others &= listed
        now = time.monotonic()
        new = [
            name
            for name in sorted(listed - self._others - set(self._declared))
            if self._aliens.get(name, 0.0) <= now
        ]
        for name, found in zip(new, await self._all(new), strict=True):
            if found:
                self._others.add(name)
            else:
                self._aliens[name] = now + ALIEN_SECONDS
        self._looked = time.monotonic()

    async def _all(self, groups: Sequence[str]) -> list[Mapping[TopicPartition, int]]:
        """What each group has committed of our partitions."""
        places = asyncio.Semaphore(AT_ONCE)

        async def one(group: str) -> Mapping[TopicPartition, int]:
            async with places:
                return await self._committed(group)

        return await asyncio.gather(*map(one, groups))

    async def _committed(self, group: str) -> Mapping[TopicPartition, int]:
        try:
            found = await self._admin.list_consumer_group_offsets(group, await self._coordinator(group))
        except Exception:
            self._coordinators.pop(group, None)
            raise
        ours = set(self._partitions)
        return {tp: one.offset for tp, one in found.items() if tp in ours and one.offset >= 0}

    async def _members(self, groups: Sequence[str]) -> Mapping[str, int]:
        """One group a request: aiokafka 0.14 reads answers about several of them wrongly."""
        places = asyncio.Semaphore(AT_ONCE)

        async def one(group: str) -> int:
            async with places:
                node = await self._coordinator(group)
                (answer,) = await self._admin.describe_consumer_groups([group], node)
            ((_, _, _, _, _, members, *_),) = answer.groups
            return len(members)

        return dict(zip(groups, await asyncio.gather(*map(one, groups)), strict=True))

    async def _coordinator(self, group: str) -> int:
        if group not in self._coordinators:
            self._coordinators[group] = await self._admin.find_coordinator(group)
        return self._coordinators[group]


def _seconds(
    since: Mapping[tuple[TopicPartition, int], float | None], tp: TopicPartition, offset: int, at: float
) -> float | None:
    if (tp, offset) not in since:
        return None
    first = since[tp, offset]
    return 0.0 if first is None else max(0.0, at - first)
