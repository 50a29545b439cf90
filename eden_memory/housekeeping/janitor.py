"""Remove what every consumer has had behind it for long enough: records of outcomes, and of topics.

Every round notes how far each group had committed, and where each topic ended (housekeeping/consumption.py).
"""

import asyncio
from collections.abc import Callable, Container, Generator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

from eden_memory.errors import Conflict, ServerAway
from eden_memory.housekeeping.compacted_topics import LoweredTopics
from eden_memory.housekeeping.consumption_store import (
    Consumption,
    ConsumptionMark,
    ConsumptionMarks,
    LedgerBounds,
    Offsets,
    Removable,
    removable,
)
from eden_memory.kafka import KafkaArguments, topic_reading
from eden_memory.kafka.groups import GroupAdmin
from eden_memory.kafka.topic_admin import TopicAdmin
from eden_memory.kafka.topic_reading import TopicOffsets
from eden_memory.logs import LibraryLogger
from eden_memory.stages.outcome_store import MongoLedger
from eden_memory.windows.trigger_store import WindowTextRetention

ROUND_SECONDS = 3_600.0
"""Between two rounds."""
PAUSE_SECONDS = 30.0
"""After a round that failed."""

log = LibraryLogger("eden.janitor")


class Janitor:
    """Makes one round at a time; a leased part of the process runs it (`eden_memory.stages.leased`).

    `kafka`: connection arguments of aiokafka; `admin`: of librdkafka.
    """

    def __init__(
        self,
        kafka: KafkaArguments,
        admin: Mapping[str, Any],
        declared: Consumption,
        marks: ConsumptionMarks,
        outcomes: MongoLedger,
        clock: Callable[[], datetime],
        texts: WindowTextRetention | None = None,
        bounds: LedgerBounds | None = None,
        lowered: LoweredTopics | None = None,
    ) -> None:
        self._kafka, self._admin, self._declared = kafka, admin, declared
        self._marks, self._outcomes, self._texts = marks, outcomes, texts
        self._clock, self._bounds, self._lowered = clock, bounds, lowered

    async def round(self) -> Removable:
        """Note how far everyone is, remove what has been consumed for long enough, and return it.

        A request about topics that Kafka refuses is raised at the end: the rest of the round does not wait for it.
        """
        now, failed = self._clock(), list[ServerAway]()
        if self._texts is not None and (erased := await self._texts.round(now)):
            log.info("texts of windows erased", windows=erased)
        if self._lowered is not None:
            with (
                suppress(Conflict),
                _noted(failed),
            ):  # Conflict: a compaction is running, and restores the topics
                await self._lowered.restore_left()
        await self._marks.add(await self._mark(now))
        marks = await self._marks.since(now - 2 * self._declared.keep)
        found = removable(marks, self._declared, now)
        await self._remove_outcomes(found)
        deleted: Offsets = {}
        if found.records:
            with _noted(failed):
                await asyncio.to_thread(TopicAdmin(self._admin).remove_records, found.records)
                deleted = found.records
        if self._bounds is not None:
            bounded = await self._bounds.round(now, deleted)
            log.info("removed what is beyond its bounds", **bounded)
        if deleted or found.outcomes:
            log.info("removed what was consumed", topics=len(deleted), stages=len(found.outcomes))
        if failed:
            raise failed[0]
        return found

    async def _mark(self, now: datetime) -> ConsumptionMark:
        """Read the commits before the ends: what a stage committed is then below the ends of its output.

        A topic that is deleted or created meanwhile is left out.
        """
        declared = self._declared
        topics = sorted({*declared.readers, *declared.writer[1], *_read(declared)})
        admin = await asyncio.to_thread(TopicAdmin, self._admin)
        before = await asyncio.to_thread(admin.ids, topics)
        groups = {
            *(group for readers in declared.readers.values() for group in readers),
            *(group for group, _ in declared.stages.values()),
            declared.writer[0],
        }
        async with GroupAdmin(self._kafka) as group_admin:
            committed = {group: await group_admin.committed(group) for group in sorted(groups)}
        async with TopicOffsets(self._kafka, topics) as offsets:
            ends = await offsets.ends()
        after = await asyncio.to_thread(admin.ids, topics)
        same = {topic: topic_id for topic, topic_id in after.items() if before.get(topic) == topic_id}
        of_groups = {group: _by_place(reached, same) for group, reached in committed.items()}
        return ConsumptionMark(now, _by_place(ends, same), of_groups, same)

    async def _remove_outcomes(self, found: Removable) -> None:
        for stage, offsets in found.outcomes.items():
            for (topic, partition), offset in offsets.items():
                removed = await self._outcomes.remove_consumed(stage, topic, partition, offset)
                if removed:
                    log.info("outcomes consumed", stage=stage, topic=topic, removed=removed)


@contextmanager
def _noted(failed: list[ServerAway]) -> Generator[None]:
    try:
        yield
    except ServerAway as error:
        failed.append(error)


def _read(declared: Consumption) -> set[str]:
    return {topic for _, topics in declared.stages.values() for topic in topics}


def _by_place(offsets: topic_reading.Offsets, topics: Container[str]) -> Offsets:
    return {(tp.topic, tp.partition): offset for tp, offset in offsets.items() if tp.topic in topics}
