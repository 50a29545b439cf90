"""Removes what every consumer has had behind it for long enough: records of outcomes, and of topics.

How far each group had committed, and where each topic ended, is noted at every round (housekeeping/consumption.py).
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from eden_memory.housekeeping.consumption import Consumption, Mark, Partition, Removable, removable
from eden_memory.kafka.connection import start
from eden_memory.kafka.offsets import committed_by, partitions_of
from eden_memory.windows.window_texts import WindowTexts

log = structlog.get_logger()


class Marks(Protocol):
    """Keeps the notes of earlier rounds."""

    async def add(self, mark: Mark) -> None:
        """Keep a note."""
        ...

    async def since(self, oldest: datetime) -> Sequence[Mark]:
        """The notes from `oldest` on, oldest first; earlier ones are forgotten."""
        ...


class Outcomes(Protocol):
    """The ledger, as far as its janitor needs it."""

    async def remove_consumed(self, stage: str, topic: str, partition: int, before: int) -> int:
        """Remove the records of outcomes whose input ends below an offset."""
        ...


class Janitor:
    """One round at a time; who runs it, and how often, is the caller's (a lease, every hour)."""

    def __init__(
        self,
        client: dict[str, Any],
        declared: Consumption,
        marks: Marks,
        outcomes: Outcomes,
        clock: Callable[[], datetime],
        texts: WindowTexts | None = None,
    ) -> None:
        self._client = client
        self._declared = declared
        self._marks = marks
        self._outcomes = outcomes
        self._clock = clock
        self._texts = texts

    async def round(self) -> Removable:
        """Note how far everyone is, and remove what has been consumed for long enough."""
        admin: Any = AIOKafkaAdminClient(**self._client)
        await start(admin)
        try:
            now = self._clock()
            await self._marks.add(await self._mark(admin, now))
            marks = await self._marks.since(now - 2 * self._declared.keep)
            found = removable(marks, self._declared, now)
            await self._remove(admin, found)
        finally:
            await admin.close()
        if self._texts is not None and (erased := await self._texts.round(now)):
            log.info("texts of windows erased", windows=erased)
        return found

    async def _mark(self, admin: Any, now: datetime) -> Mark:
        """Commits are read before the ends: what a stage committed is then below the ends of its output."""
        declared = self._declared
        groups = {
            *(group for readers in declared.readers.values() for group in readers),
            *(group for group, _ in declared.stages.values()),
            declared.writer[0],
        }
        committed = {group: _by_place(await committed_by(admin, group)) for group in sorted(groups)}
        topics = sorted({*declared.readers, *declared.writer[1]})
        return Mark(now, await _ends(admin, self._client, topics), committed)

    async def _remove(self, admin: Any, found: Removable) -> None:
        for stage, offsets in found.outcomes.items():
            for (topic, partition), offset in offsets.items():
                removed = await self._outcomes.remove_consumed(stage, topic, partition, offset)
                if removed:
                    log.info("outcomes consumed", stage=stage, topic=topic, removed=removed)
        if found.records:
            await admin.delete_records(
                {
                    TopicPartition(*tp): RecordsToDelete(before_offset=offset)
                    for tp, offset in found.records.items()
                }
            )


async def _ends(admin: Any, client: dict[str, Any], topics: Sequence[str]) -> dict[Partition, int]:
    partitions = await partitions_of(admin, topics)
    consumer: Any = AIOKafkaConsumer(**client, enable_auto_commit=False)
    await start(consumer)
    try:
        ends: dict[TopicPartition, int] = await consumer.end_offsets(partitions) if partitions else {}
    finally:
        await consumer.stop()
    return _by_place(ends)


def _by_place(offsets: Mapping[TopicPartition, int]) -> dict[Partition, int]:
    return {(tp.topic, tp.partition): offset for tp, offset in offsets.items()}
