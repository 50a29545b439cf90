"""Wait until every stage has processed every window and no group lags."""

import asyncio
import time

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.models.breaker import UNMEASURED
from eden_memory.models.catalogue import asked_for, is_url
from eden_memory.names import Names
from eden_memory.observability.watching import FormationProgress
from eden_memory.processors.pipeline import FACT_EXTRACTION, FORMATION_TRIGGER, REFLECTION_EXTRACTION, USAGE
from eden_memory.settings import Settings

QUIET_SECONDS = 120.0
"""Seconds without anything new after which the demo shows what there is."""
SETTLED_SECONDS = 2.5
"""Seconds for which nothing may be left: offsets are committed, and lag is read, every second."""
Database = AsyncDatabase[dict[str, object]]


def longest_call(settings: Settings) -> float:
    """Return the seconds that a first call to a model may take; 0 where only rules are used."""
    asked = asked_for(settings)
    times = UNMEASURED if any(map(is_url, asked)) else 1
    return settings.models.timeout_seconds * times if asked else 0.0


async def formed(
    database: Database,
    names: Names,
    sessions: int,
    progress: FormationProgress,
    cap_usd: float,
    call_seconds: float = 0.0,
) -> bool:
    """Return True when all is formed; False if progress stops or the calls cost more than the cap.

    `call_seconds`: what one call to a model may take, during which nothing comes.
    """
    quiet = max(QUIET_SECONDS, call_seconds)
    moved, settled_since, before = time.monotonic(), 0.0, ""
    while time.monotonic() - moved < quiet:
        if float(progress.total.cost) > cap_usd:
            return False
        now = _state(progress)
        if now != before:
            moved, before = time.monotonic(), now
        if not await _done(database, names, sessions, progress):
            settled_since = 0.0
        elif not settled_since:
            settled_since = time.monotonic()
        elif time.monotonic() - settled_since > SETTLED_SECONDS:
            return True
        await asyncio.sleep(0.25)
    return False


async def _done(database: Database, names: Names, sessions: int, progress: FormationProgress) -> bool:
    windows, outcomes = database[names["windows"]], database[names["outcomes"]]
    if await windows.count_documents({"closed.because": "ended"}) < sessions:
        return False
    count = await windows.count_documents({})
    for stage in (FACT_EXTRACTION, REFLECTION_EXTRACTION):
        if await outcomes.count_documents({"stage": stage}) < count:
            return False
    # Watermarks keep coming: formation-trigger is never quite at the end of its topic.
    return not any(_lag(progress, FORMATION_TRIGGER).values())


def _state(progress: FormationProgress) -> str:
    """Return what changes while memory forms: not a Watermark, nor a failed call, which usage counts."""
    counts = progress.messages, progress.windows, progress.decisions.total(), progress.reflections.total()
    answered = progress.total.calls - progress.total.failed
    return f"{counts} {progress.blobs} {_lag(progress, FORMATION_TRIGGER, USAGE)} {answered}"


def _lag(progress: FormationProgress, *without: str) -> dict[str, int]:
    return {group: lag for group, lag in progress.lag.items() if group not in without}
