"""Whether a set of groups has nothing left to do: all they read is behind them, and nothing new came of it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from eden_memory.kafka.connection import start
from eden_memory.kafka.offsets import partitions_of
from eden_memory.stages.patience import until_done

LOOK_SECONDS = 0.15
Ends = Mapping[TopicPartition, int]


class Quiet:
    """One connection each for groups and ends; `groups` are group → full names of the topics that it reads."""

    def __init__(self, client: dict[str, Any], groups: Mapping[str, Sequence[str]]) -> None:
        self._groups = groups
        self._admin: Any = AIOKafkaAdminClient(**client)
        self._consumer: Any = AIOKafkaConsumer(**client, enable_auto_commit=False)
        self._partitions: list[TopicPartition] = []
        self._begins: Ends = {}

    async def __aenter__(self) -> "Quiet":
        """Connect."""
        try:
            await start(self._admin)
            await start(self._consumer)
            topics = sorted({topic for read in self._groups.values() for topic in read})
            self._partitions = await partitions_of(self._admin, topics)
            self._begins = await self._consumer.beginning_offsets(self._partitions)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect."""
        await asyncio.gather(self._consumer.stop(), self._admin.close(), return_exceptions=True)

    async def until_quiet(self) -> None:
        """Return once every group has passed the ends, and these are the same as before it was looked."""
        before = await self.ends()
        while True:
            passed = await self._passed(before)
            after = await self.ends()
            if passed and after == before:
                return
            before = after
            await asyncio.sleep(LOOK_SECONDS)

    async def until_passed(self) -> None:
        """Return once every group has passed what is there now."""
        ends = await self.ends()
        while True:
            if await self._passed(ends):
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def standing(self) -> tuple[int, int]:
        """How many offsets all groups together have not passed yet, and how many they have."""
        ends = await self.ends()
        behind = passed = 0
        for group, topics in self._groups.items():
            found = await until_done(lambda group=group: self._committed(group))
            for tp, end in ends.items():
                if tp.topic in topics:
                    reached = found.get(tp, self._begins[tp])
                    behind += max(0, end - reached)
                    passed += reached
        return behind, passed

    async def ends(self) -> Ends:
        """Behind the last record of each partition."""
        return await until_done(lambda: self._consumer.end_offsets(self._partitions))

    async def _passed(self, ends: Ends) -> bool:
        for group, topics in self._groups.items():
            found = await until_done(lambda group=group: self._committed(group))
            if any(found.get(tp, self._begins[tp]) < end for tp, end in ends.items() if tp.topic in topics):
                return False
        return True

    async def _committed(self, group: str) -> Ends:
        coordinator = await self._admin.find_coordinator(group)
        found = await self._admin.list_consumer_group_offsets(group, coordinator)
        return {tp: one.offset for tp, one in found.items() if one.offset >= 0}
