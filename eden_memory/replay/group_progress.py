"""Read the events that a topic holds, in no group, and how far consumer groups are in their topics."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from aiokafka import TopicPartition

from eden_memory.kafka import KafkaArguments
from eden_memory.kafka.groups import GroupAdmin
from eden_memory.kafka.record import Record
from eden_memory.kafka.topic_reading import Offsets, TopicOffsets, reading
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import REGISTRY, Event
from eden_memory.stages.patience import until_done


class Recorded(NamedTuple):
    """An event, and the record that it was read from."""

    event: Event
    envelope: Envelope
    record: Record


async def recorded(
    kafka: KafkaArguments, topic: str, since: Offsets | None = None
) -> AsyncGenerator[list[Recorded]]:
    """Yield the events of a topic up to its present ends, without tombstones and records that cannot be read."""
    async with reading(kafka, [topic], since) as source:
        async for batch in source.batches():
            yield [found for record in batch if (found := recorded_event(record)) is not None]


def recorded_event(record: Record) -> Recorded | None:
    """Return a record's event; None for a tombstone, and for what no program of ours wrote."""
    with suppress(ValueError):
        envelope = Envelope.of_headers(record.headers)
        if record.value:
            return Recorded(REGISTRY.decode(envelope.name, envelope.version, record.value), envelope, record)
    return None


LOOK_SECONDS = 0.15


class GroupProgress(TopicOffsets):
    """`groups`: group → full names of the topics that it reads. Uses one admin connection and one consumer."""

    def __init__(self, kafka: KafkaArguments, groups: Mapping[str, Sequence[str]]) -> None:
        super().__init__(kafka, sorted({topic for topics in groups.values() for topic in topics}))
        self._admin, self._groups = GroupAdmin(kafka), groups
        self.begin: Offsets = {}
        """The first offset of each partition when it connected."""

    async def connect(self) -> None:
        """Connect, and note where the topics begin; the number of partitions never changes."""
        await super().connect()
        try:
            await self._admin.connect()
            self.begin = await self.begins()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Disconnect."""
        await super().close()
        await self._admin.close()

    async def committed(self, group: str) -> dict[TopicPartition, int]:
        """Return a group's committed offsets; partitions without a commit are left out."""
        found = await self._admin.committed(group)
        return {tp: found[tp] for tp in self.partitions if tp in found}

    async def reached(self) -> Offsets:
        """Return the committed offsets of all groups together; partitions without a commit are left out."""
        found: dict[TopicPartition, int] = {}
        for group in self._groups:
            found |= await self.committed(group)
        return found

    async def behind(self, ends: Offsets) -> int:
        """Return how many offsets up to `ends` are still to be read; an empty partition needs no commit."""
        reached: Offsets = {**self.begin, **await self.reached()}
        return sum(max(0, end - reached[tp]) for tp, end in ends.items())

    async def standing(self) -> tuple[int, int]:
        """Return how many offsets the groups have not passed yet, and how many they have."""
        ends = await until_done(self.ends)
        behind = passed = 0
        for group, topics in self._groups.items():
            found = await until_done(lambda group=group: self.committed(group))
            reached: Offsets = {**self.begin, **found}
            own = [tp for tp in ends if tp.topic in topics]
            behind += sum(max(0, ends[tp] - reached[tp]) for tp in own)
            passed += sum(reached[tp] for tp in own)
        return behind, passed

    async def until_passed(self) -> None:
        """Return once every group has passed the present ends."""
        ends = await until_done(self.ends)
        while True:
            if await self._passed(ends):
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def until_quiet(self) -> None:
        """Return once every group has passed the ends, and no record has been added meanwhile."""
        before = await until_done(self.ends)
        while True:
            passed = await self._passed(before)
            after = await until_done(self.ends)
            if passed and after == before:
                return
            before = after
            await asyncio.sleep(LOOK_SECONDS)

    async def _passed(self, ends: Offsets) -> bool:
        for group, topics in self._groups.items():
            found = await until_done(lambda group=group: self.committed(group))
            if any(found.get(tp, self.begin[tp]) < end for tp, end in ends.items() if tp.topic in topics):
                return False
        return True
