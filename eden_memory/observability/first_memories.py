"""One line in the log once the first messages have become memory: how many memories there are."""

from collections.abc import Awaitable, Callable, Collection, Mapping

from eden_memory.kafka.lag import LagReading
from eden_memory.logs import LibraryLogger

log = LibraryLogger("eden.lag")


class FirstMemories:
    """Follows the readings of lag; where memory existed at the first of them, it says nothing.

    `groups`: the stages'; `topics`: whole names of those of facts and reflections; `counts`: documents by collection.
    """

    def __init__(
        self,
        groups: Collection[str],
        topics: Collection[str],
        counts: Callable[[], Awaitable[Mapping[str, int]]],
    ) -> None:
        self._groups, self._topics, self._counts = groups, topics, counts
        self._records: int | None = None
        """In `topics`, at the last reading."""
        self._done = False

    async def look(self, reading: LagReading) -> None:
        """Log what there is once no stage is behind and nothing came since the last reading."""
        if self._done:
            return
        before, self._records = self._records, self._recorded(reading)
        if before is None:
            self._done = self._records > 0
        elif before == self._records > 0 and not self._behind(reading):
            self._done = True
            counts = await self._counts()
            log.info("first messages formed", facts=counts["facts"], reflections=counts["reflections"])

    def _recorded(self, reading: LagReading) -> int:
        return sum(end for tp, end in reading.ends.items() if tp.topic in self._topics)

    def _behind(self, reading: LagReading) -> bool:
        return any(row.lag for row in reading.groups if row.group in self._groups)
