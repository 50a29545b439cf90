"""Counts the model calls of searches in the stored totals, beside the searches: summed up, written in batches."""

import asyncio
from uuid import uuid4

from eden_memory.logs import LibraryLogger
from eden_memory.metrics import count_usage
from eden_memory.models.call_accounts import CallWatch
from eden_memory.schemas.events import ModelCalled
from eden_memory.usage.budget_rules import period_of
from eden_memory.usage.call_totals import UsageStore

log = LibraryLogger()
SECONDS = 2.0
WRITE_SECONDS = 20.0
LONGEST_PAUSE = 60.0
MOST = 10_000
"""Sums that wait to be written; beyond it new ones are not counted."""
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

    def __init__(self, store: UsageStore, calls: CallWatch, seconds: float = SECONDS) -> None:
        self._store, self._calls, self._seconds = store, calls, seconds
        self._sums: dict[tuple[object, ...], ModelCalled] = {}
        self._unsure: list[ModelCalled] = []
        """Of a batch that may be written or not."""
        self._writing: asyncio.Task[None] | None = None

    def called(self, call: ModelCalled) -> None:
        """Add a call to what is written next."""
        self._calls.called(call)
        key = _key(call)
        if key in self._sums:
            self._sums[key] = _sum(self._sums[key], call)
        elif len(self._sums) < MOST:
            alone = {"call_id": f"{call.stage}-{uuid4().hex}", "session_id": None, "response_model": None}
            self._sums[key] = call.model_copy(update=alone)
        else:
            log.warning("a search's model call is not counted: too many wait for MongoDB")
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._later(), name="usage of searches")

    async def flush(self) -> bool:
        """Write what waits; whether it is written."""
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
