"""One line in the log once the first messages have become memory: how many memories there are."""

from collections.abc import Awaitable, Callable, Collection, Mapping

from aiokafka import TopicPartition

from eden_memory.kafka.lag import LagReading
from eden_memory.logs import LibraryLogger

Ends = Mapping[TopicPartition, int]
log = LibraryLogger("eden.lag")


class FirstMemories:
    """Follows the readings of lag; where memory existed at the first of them, it says nothing.

    `groups`: the stages'; `topics`: whole names of those between the chat and memory; `counts`: documents by
    collection.
    """

    def __init__(
        self,
        groups: Collection[str],
        topics: Collection[str],
        counts: Callable[[], Awaitable[Mapping[str, int]]],
    ) -> None:
        self._groups, self._topics, self._counts = groups, topics, counts
        self._settled: Ends | None = None
        """The ends of `topics` at the last reading, if no stage was behind them. (Of the chat's topic, into which
        watermarks go at all times, some stage nearly always is.)"""
        self._counted: Ends | None = None
        self._looked = self._done = False

    async def look(self, reading: LagReading) -> None:
        """Log what there is once stages have read all that there was a reading ago, and nothing came since."""
        if self._done:
            return
        ends = {tp: end for tp, end in reading.ends.items() if tp.topic in self._topics}
        before, self._settled = self._settled, None if self._behind(reading) else ends
        if not self._looked:
            self._looked, self._done = True, bool(sum(await self._formed()))
        elif before == ends != self._counted and any(ends.values()):
            self._counted = ends
            facts, reflections = await self._formed()
            if facts or reflections:
                self._done = True
                log.info("first messages formed", facts=facts, reflections=reflections)

    async def _formed(self) -> tuple[int, int]:
        counts = await self._counts()
        return counts["facts"], counts["reflections"]

    def _behind(self, reading: LagReading) -> bool:
        return any(
            row.lag for row in reading.groups if row.group in self._groups and row.tp.topic in self._topics
        )
