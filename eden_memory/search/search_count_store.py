"""Counts of searches, written together every few seconds: facts returned, and model calls."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from datetime import UTC, datetime
from typing import Any, Protocol
from uuid import uuid4

from pymongo import ReadPreference, UpdateOne
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.write_concern import WriteConcern

from eden_memory.logs import LibraryLogger
from eden_memory.metrics import count_usage
from eden_memory.models.call_accounts import CallWatch
from eden_memory.names import Names
from eden_memory.schemas.documents import Access, Fact, ForgottenMark
from eden_memory.schemas.events import ModelCalled
from eden_memory.usage.budget_rules import UsageStore, period_of

log = LibraryLogger()


ACCESS_SECONDS = 5.0

MOST_ACCESSES = 20_000
"""Most facts that wait to be counted; further ones are not counted."""

AT_ONCE = 1_000
"""Counts that one query deletes."""

FORGOTTEN = {"kind": "fact", "reach": "for_ever"}


class MongoAccesses:
    """Accesses in MongoDB; counts may be lost with a primary, nothing waits for a majority.

    A fact that was forgotten since a search found it is not counted. Forgetting marks a fact before it deletes its
    count, so whoever begins a count and finds no mark afterwards has begun it before that.
    """

    def __init__(self, database: AsyncDatabase[dict[str, Any]], names: Names) -> None:
        self._access = database.get_collection(names[Access.COLLECTION], write_concern=WriteConcern(1))
        primary = ReadPreference.PRIMARY
        self._facts = database.get_collection(names[Fact.COLLECTION], read_preference=primary)
        self._marks = database.get_collection(names[ForgottenMark.COLLECTION], read_preference=primary)

    async def count(self, found: Mapping[str, int], at: datetime) -> None:
        """Add to the counts of existing facts, in one write."""
        rows = self._access.find({"_id": {"$in": list(found)}}, {"_id": 1})
        counted = {row["_id"] async for row in rows}
        begun = await self._remembered(found.keys() - counted)
        writes = [
            UpdateOne(
                {"_id": fact_id},
                {"$inc": {"access_count": found[fact_id]}, "$max": {"last_accessed_at": at}},
                upsert=fact_id in begun,
            )
            for fact_id in counted | begun
        ]
        if writes:
            await self._access.bulk_write(writes, ordered=False)
        if gone := begun - await self._remembered(begun):
            await self._delete(gone)

    async def remove_forgotten(self) -> int:
        """Delete counts of forgotten facts that a process left when it was killed; return how many."""
        removed, targets = 0, list[str]()
        async for mark in self._marks.find(FORGOTTEN, {"target": 1}):
            targets.append(mark["target"])
            if len(targets) == AT_ONCE:
                removed += await self._delete(targets)
                targets = []
        return removed + await self._delete(targets)

    async def _delete(self, fact_ids: Collection[str]) -> int:
        return (await self._access.delete_many({"_id": {"$in": list(fact_ids)}})).deleted_count

    async def _remembered(self, fact_ids: Set[str]) -> set[str]:
        """Return those of the facts that are stored and not about to be erased."""
        if not fact_ids:
            return set()
        wanted = list(fact_ids)
        stored = {row["_id"] async for row in self._facts.find({"_id": {"$in": wanted}}, {"_id": 1})}
        marks = self._marks.find({**FORGOTTEN, "target": {"$in": wanted}}, {"target": 1})
        return stored - {mark["target"] async for mark in marks}


class Accesses(Protocol):
    """How often facts were found (`memory_access`)."""

    async def count(self, found: Mapping[str, int], at: datetime) -> None:
        """Count each fact so many times more, the last time at `at`."""
        ...


class AccessCounting:
    """:meth:`found` never waits and never fails; made in the event loop that searches."""

    def __init__(
        self,
        accesses: Accesses,
        *,
        seconds: float = ACCESS_SECONDS,
        most: int = MOST_ACCESSES,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        lost: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._accesses, self._seconds, self._most = accesses, seconds, most
        self._clock, self._lost = clock, lost
        self._waiting: Counter[str] = Counter()
        self._writing: asyncio.Task[None] | None = None

    def found(self, fact_ids: Sequence[str]) -> None:
        """Count these facts, which a search returned."""
        for fact_id in fact_ids:
            if fact_id in self._waiting or len(self._waiting) < self._most:
                self._waiting[fact_id] += 1
            else:
                self._lost(1)
        if self._waiting and (self._writing is None or self._writing.done()):
            self._writing = asyncio.create_task(self._later(), name="access counting")

    async def flush(self) -> None:
        """Write what waits; counts that cannot be written are lost, and logged."""
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


USAGE_SECONDS = 2.0

WRITE_SECONDS = 20.0

LONGEST_PAUSE = 60.0

MOST_SUMS = 10_000
"""Most sums that wait to be written; further ones are not counted."""

SUMMED = (
    "requests",
    "items",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "reasoning_tokens",
    "seconds",
)


class SearchUsage:
    """eden_memory.models.call_accounts.CallWatch; made in the event loop that searches.

    Calls alike of one day become one ModelCalled with an id of its own, which stays the same however often it is
    written: it counts once. Nothing in it follows from a query.
    """

    def __init__(self, store: UsageStore, calls: CallWatch, seconds: float = USAGE_SECONDS) -> None:
        self._store, self._calls, self._seconds = store, calls, seconds
        self._sums: dict[tuple[object, ...], ModelCalled] = {}
        self._unsure: list[ModelCalled] = []
        """The calls of a batch that may or may not have been written."""
        self._writing: asyncio.Task[None] | None = None

    def called(self, call: ModelCalled) -> None:
        """Add a call to the next write."""
        self._calls.called(call)
        key = _key(call)
        if key in self._sums:
            self._sums[key] = _sum(self._sums[key], call)
        elif len(self._sums) < MOST_SUMS:
            alone = {"call_id": f"{call.stage}-{uuid4().hex}", "session_id": None, "response_model": None}
            self._sums[key] = call.model_copy(update=alone)
        else:
            log.warning("a search's model call is not counted: too many wait for MongoDB")
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._later(), name="usage of searches")

    async def flush(self) -> bool:
        """Write what waits; return whether it was written."""
        if not self._unsure:
            self._unsure, self._sums = list(self._sums.values()), {}
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                new = await self._store.count(self._unsure)
        except Exception as error:  # noqa: BLE001 - written again with the same ids
            log.warning(
                "usage of searches is not written yet", calls=len(self._unsure), error=type(error).__name__
            )
            return False
        count_usage(new, repeated=len(self._unsure) - len(new))
        self._unsure = []
        return True

    async def close(self, seconds: float = 5.0) -> None:
        """Write what waits, for a bounded time."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
        try:
            async with asyncio.timeout(seconds):
                while (self._unsure or self._sums) and await self.flush():
                    pass
        except TimeoutError:
            pass
        if lost := len(self._unsure) + len(self._sums):
            log.warning("usage of searches is lost", sums=lost)

    async def _later(self) -> None:
        pause = self._seconds
        while self._sums or self._unsure:
            await asyncio.sleep(pause)
            pause = self._seconds if await self.flush() else min(LONGEST_PAUSE, 2 * pause)


def _key(call: ModelCalled) -> tuple[object, ...]:
    """Return the fields that calls share if they are written as one."""
    priced = call.cost_usd is not None
    whose = call.namespace, call.agent_id, call.user_id
    what = call.stage, call.operation, call.provider, call.model, call.outcome
    return (period_of("day", call.started_at), *whose, *what, priced)


def _sum(known: ModelCalled, call: ModelCalled) -> ModelCalled:
    added: dict[str, object] = {name: getattr(known, name) + getattr(call, name) for name in SUMMED}
    if known.cost_usd is not None and call.cost_usd is not None:
        added["cost_usd"] = known.cost_usd + call.cost_usd
    return known.model_copy(update=added)
