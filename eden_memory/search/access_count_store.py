"""Counts the facts that searches return into `memory_access`: collected, and written together every few seconds."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from pymongo import UpdateOne
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.write_concern import WriteConcern

from eden_memory.logs import LibraryLogger
from eden_memory.names import Names
from eden_memory.schemas.documents import Access

log = LibraryLogger()
SECONDS = 5.0
MOST = 20_000
"""Facts that wait to be counted; beyond it new ones are not counted."""


class MongoAccesses:
    """Accesses in MongoDB; counts may be lost with a primary, nothing waits for a majority."""

    def __init__(self, database: AsyncDatabase[dict[str, Any]], names: Names) -> None:
        self._access = database.get_collection(names[Access.COLLECTION], write_concern=WriteConcern(1))

    async def count(self, found: Mapping[str, int], at: datetime) -> None:
        """Add to the counts, in one write."""
        writes = [
            UpdateOne(
                {"_id": fact_id},
                {"$inc": {"access_count": times}, "$max": {"last_accessed_at": at}},
                upsert=True,
            )
            for fact_id, times in found.items()
        ]
        if writes:
            await self._access.bulk_write(writes, ordered=False)


class Accesses(Protocol):
    """How often facts were found (`memory_access`)."""

    async def count(self, found: Mapping[str, int], at: datetime) -> None:
        """Each fact so many times more, the last time at `at`."""
        ...


class AccessCounting:
    """:meth:`found` never waits and never fails; made in the event loop that searches."""

    def __init__(
        self,
        accesses: Accesses,
        *,
        seconds: float = SECONDS,
        most: int = MOST,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        lost: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._accesses, self._seconds, self._most = accesses, seconds, most
        self._clock, self._lost = clock, lost
        self._waiting: Counter[str] = Counter()
        self._writing: asyncio.Task[None] | None = None

    def found(self, fact_ids: Sequence[str]) -> None:
        """A search returned these."""
        for fact_id in fact_ids:
            if fact_id in self._waiting or len(self._waiting) < self._most:
                self._waiting[fact_id] += 1
            else:
                self._lost(1)
        if self._waiting and (self._writing is None or self._writing.done()):
            self._writing = asyncio.create_task(self._later(), name="access counting")

    async def flush(self) -> None:
        """Write what waits; what cannot be written is lost, and said."""
        counts, self._waiting = self._waiting, Counter()
        if not counts:
            return
        try:
            await self._accesses.count(counts, self._clock())
        except Exception as error:  # noqa: BLE001 - a count is not worth an error of those who search
            self._lost(counts.total())
            log.warning("accesses were not counted", facts=len(counts), error=type(error).__name__)

    async def close(self) -> None:
        """Write what waits, and end."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
        await self.flush()

    async def _later(self) -> None:
        while self._waiting:
            await asyncio.sleep(self._seconds)
            await self.flush()
