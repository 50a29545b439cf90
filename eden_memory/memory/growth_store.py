"""What was formed day by day, and what was forgotten last: over indexes, and at most so much of each kind."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.names import Names
from eden_memory.schemas.documents import Consolidated, Erasure, Fact, Reflection, Snapshot

Row = dict[str, Any]
DAYS = 30
MOST_SCOPES = 100
"""With both values of a switch 200 ranges of an index: so many MongoDB merges in order, more it would sort."""
MOST_COUNTED = 3_000
"""Of each kind, the newest."""
ByDay = tuple[tuple[str, int], ...]
"""Days as `2026-01-31` (UTC), the oldest first."""


@dataclass(frozen=True, slots=True)
class Growth:
    """How much was formed a day; days before the oldest one that is counted are left out."""

    facts: ByDay
    reflections: ByDay
    texts: ByDay
    """Versions of consolidated texts, the last 21 of each scope."""
    partial: bool
    """Whether more scopes changed, or more was formed, than is counted."""


@dataclass(frozen=True, slots=True)
class ForgottenLately:
    """What went with one thing that was forgotten, in numbers: nothing else is kept of it."""

    kind: str
    at: datetime
    facts: int
    reflections: int
    texts: int


class GrowthCounts:
    """Reads one namespace."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        self._snapshots = database[names[Snapshot.COLLECTION]]
        self._facts, self._reflections = (
            database[names[Fact.COLLECTION]],
            database[names[Reflection.COLLECTION]],
        )
        self._blobs = database[names[Consolidated.COLLECTION]]
        self._erasures = database[names[Erasure.COLLECTION]]

    async def of_all(self, now: datetime) -> Growth:
        """Return the growth of the scopes that changed last."""
        changed = self._snapshots.find({"changed_at": {"$gte": _days(now)[0]}}, {"_id": 1})
        rows = await changed.sort("changed_at", -1).limit(MOST_SCOPES).to_list()
        return await self.of([row["_id"] for row in rows], now)

    async def forgotten(self, most: int) -> list[ForgottenLately]:
        """Return what was forgotten last, the newest first."""
        lists = {"facts": "$facts", "reflections": "$reflections", "texts": "$blobs"}
        counts: Row = {name: {"$size": {"$ifNull": [path, []]}} for name, path in lists.items()}
        steps: list[Row] = [
            {"$sort": {"forgotten_at": -1}},
            {"$limit": most},
            {"$project": {"_id": 0, "kind": 1, "at": "$forgotten_at", **counts}},
        ]
        return [ForgottenLately(**row) async for row in await self._erasures.aggregate(steps)]

    async def of(self, scope_keys: Sequence[str], now: datetime) -> Growth:
        """Return the growth of these scopes, of which there are at most MOST_SCOPES."""
        days = _days(now)
        facts, reflections, texts = await asyncio.gather(
            _counted(self._facts, _formed("active", scope_keys, days[0])),
            _counted(self._reflections, _formed("absorbed", scope_keys, days[0])),
            _counted(self._blobs, _consolidated(scope_keys, days[0])),
        )
        full = [sum(counts.values()) >= MOST_COUNTED for counts in (facts, reflections)]
        return Growth(
            _by_day(days, facts, cut=full[0]),
            _by_day(days, reflections, cut=full[1]),
            _by_day(days, texts, cut=False),
            len(scope_keys) == MOST_SCOPES or any(full),
        )


def _days(now: datetime) -> list[datetime]:
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return [today - timedelta(days=ago) for ago in reversed(range(DAYS))]


def _by_day(days: Sequence[datetime], counts: Mapping[str, int], *, cut: bool) -> ByDay:
    named = [f"{day:%Y-%m-%d}" for day in days]
    return tuple((day, counts.get(day, 0)) for day in named if not cut or day >= min(counts))


def _formed(switch: str, scope_keys: Sequence[str], since: datetime) -> list[Row]:
    """Return steps that read an index of lists alone, newest first."""
    query: Row = {"scope_key": {"$in": list(scope_keys)}, switch: {"$in": [True, False]}}
    return [
        {"$match": {**query, "formed_at": {"$gte": since}}},
        {"$sort": {"formed_at": -1}},
        {"$limit": MOST_COUNTED},
        {"$project": {"_id": 0, "at": "$formed_at"}},
    ]


def _consolidated(scope_keys: Sequence[str], since: datetime) -> list[Row]:
    earlier: Row = {"$ifNull": ["$history.consolidated_at", []]}
    return [
        {"$match": {"_id": {"$in": list(scope_keys)}}},
        {"$project": {"at": {"$concatArrays": [["$last_consolidated_at"], earlier]}}},
        {"$unwind": "$at"},
        {"$match": {"at": {"$gte": since}}},
    ]


async def _counted(collection: Any, steps: Sequence[Row]) -> dict[str, int]:
    day: Row = {"$dateTrunc": {"date": "$at", "unit": "day"}}
    rows = await collection.aggregate([*steps, {"$group": {"_id": day, "count": {"$sum": 1}}}])
    return {f"{row['_id']:%Y-%m-%d}": row["count"] async for row in rows}
