"""Remove what every consumer has had behind it for long enough: records of outcomes, and of topics.

Every round notes how far each group had committed, and where each topic ended (housekeeping/consumption.py).
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from eden_memory.housekeeping.consumption import Consumption, ConsumptionMark, Removable, removable
from eden_memory.housekeeping.consumption_store import ConsumptionMarks
from eden_memory.housekeeping.consumption_topics import ConsumedTopics, consumed_topics
from eden_memory.logs import LibraryLogger
from eden_memory.stages.outcome_store import MongoLedger
from eden_memory.windows.window_text_store import WindowTextRetention

ROUND_SECONDS = 3_600.0
"""Between two rounds."""
PAUSE_SECONDS = 30.0
"""After a round that failed."""

log = LibraryLogger("eden.janitor")


class Janitor:
    """Makes one round at a time; a leased part of the process runs it (`eden_memory.stages.leased`).

    `client`: connection arguments of aiokafka; `admin`: of librdkafka.
    """

    def __init__(
        self,
        client: dict[str, Any],
        admin: Mapping[str, Any],
        declared: Consumption,
        marks: ConsumptionMarks,
        outcomes: MongoLedger,
        clock: Callable[[], datetime],
        texts: WindowTextRetention | None = None,
    ) -> None:
        self._client, self._admin, self._declared = client, admin, declared
        self._marks, self._outcomes, self._texts = marks, outcomes, texts
        self._clock = clock

    async def round(self) -> Removable:
        """Note how far everyone is, remove what has been consumed for long enough, and return it."""
        async with consumed_topics(self._client, self._admin) as topics:
            now = self._clock()
            await self._marks.add(await self._mark(topics, now))
            marks = await self._marks.since(now - 2 * self._declared.keep)
            found = removable(marks, self._declared, now)
            await self._remove_outcomes(found)
            await topics.remove(found.records)
        if self._texts is not None and (erased := await self._texts.round(now)):
            log.info("texts of windows erased", windows=erased)
        if found.records or found.outcomes:
            log.info("removed what was consumed", topics=len(found.records), stages=len(found.outcomes))
        return found

    async def _mark(self, topics: ConsumedTopics, now: datetime) -> ConsumptionMark:
        """Read the commits before the ends: what a stage committed is then below the ends of its output."""
        declared = self._declared
        groups = {
            *(group for readers in declared.readers.values() for group in readers),
            *(group for group, _ in declared.stages.values()),
            declared.writer[0],
        }
        committed = {group: await topics.committed(group) for group in sorted(groups)}
        ends = await topics.ends(sorted({*declared.readers, *declared.writer[1]}))
        return ConsumptionMark(now, ends, committed)

    async def _remove_outcomes(self, found: Removable) -> None:
        for stage, offsets in found.outcomes.items():
            for (topic, partition), offset in offsets.items():
                removed = await self._outcomes.remove_consumed(stage, topic, partition, offset)
                if removed:
                    log.info("outcomes consumed", stage=stage, topic=topic, removed=removed)
