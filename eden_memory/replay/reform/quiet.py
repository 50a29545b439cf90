"""Whether a set of groups has nothing left to do: all they read is behind them, and nothing new came of it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka import TopicPartition

from eden_memory.kafka.offsets import TopicOffsets
from eden_memory.stages.patience import until_done

LOOK_SECONDS = 0.15
Ends = Mapping[TopicPartition, int]


class Quiet(TopicOffsets):
    """`groups` are group → full names of the topics that it reads."""

    def __init__(self, client: dict[str, Any], groups: Mapping[str, Sequence[str]]) -> None:
        super().__init__(client, sorted({topic for topics in groups.values() for topic in topics}))
        self._groups = groups
        self._begins: Ends = {}

    async def connect(self) -> None:
        """Connect, and note where the topics begin."""
        await super().connect()
        try:
            self._begins = await self.begins()
        except BaseException:
            await self.close()
            raise

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
            found = await until_done(lambda group=group: self.committed(group))
            for tp, end in ends.items():
                if tp.topic in topics:
                    reached = found.get(tp, self._begins[tp])
                    behind += max(0, end - reached)
                    passed += reached
        return behind, passed

    async def ends(self) -> dict[TopicPartition, int]:
        """The offset behind the last record of each partition, however long the brokers are away."""
        return await until_done(super().ends)

    async def _passed(self, ends: Ends) -> bool:
        for group, topics in self._groups.items():
            found = await until_done(lambda group=group: self.committed(group))
            if any(found.get(tp, self._begins[tp]) < end for tp, end in ends.items() if tp.topic in topics):
                return False
        return True
