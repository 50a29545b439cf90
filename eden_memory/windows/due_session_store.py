"""What watermarks look for: partitions that ask at the same moment share a query."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pymongo.asynchronous.collection import AsyncCollection

from eden_memory.mongo.shared_reads import SharedReads
from eden_memory.usage.budget_rules import HELD

Row = dict[str, Any]
Asked = tuple[int, Any, int]
"""A partition, what is asked about it, and how many sessions at most."""
WAITS: Row = {"$ne": None, "$not": {"$regex": f"^{HELD}"}}


class WatermarkReads:
    """Sessions by partition: those that have gone cold, are not published, or wait for a document."""

    def __init__(self, sessions: AsyncCollection[Row]) -> None:
        self._sessions = sessions
        self._due = SharedReads(self._read_due)
        self._unpublished = SharedReads(self._read_unpublished)
        self._waiting = SharedReads(self._read_waiting)

    async def due(self, partition: int, time: datetime, most: int) -> list[str]:
        """Those that have gone cold or stale by `time`, the longest ago first."""
        asked = partition, time, most
        return list((await self._due.get([asked]))[asked])

    async def unpublished(self, partition: int, after: str, most: int) -> list[str]:
        """Those with something in the outbox, by id, from behind the id `after` on."""
        asked = partition, after, most
        return list((await self._unpublished.get([asked]))[asked])

    async def waiting(self, partition: int) -> int:
        """How many wait for a document."""
        return (await self._waiting.get([partition])).get(partition, 0)

    async def _read_due(self, asked: Sequence[Asked]) -> Mapping[Asked, Sequence[str]]:
        return await self._together(asked, lambda time: {"due_at": {"$lte": time}}, "due_at")

    async def _read_unpublished(self, asked: Sequence[Asked]) -> Mapping[Asked, Sequence[str]]:
        return await self._together(asked, lambda after: {"unpublished": True, "_id": {"$gt": after}}, "_id")

    async def _together(
        self, asked: Sequence[Asked], query: Callable[[Any], Row], by: str
    ) -> Mapping[Asked, Sequence[str]]:
        """One query where its bound is not reached, so that nobody's sessions take another's place."""
        most = min(limit for _, _, limit in asked)
        each = [{"partition": partition, **query(what)} for partition, what, _ in asked]
        found = self._sessions.find({"$or": each}, {"partition": 1}, sort={by: 1}, limit=most)
        of: dict[int, list[str]] = {partition: [] for partition, _, _ in asked}
        rows = await found.to_list()
        if len(asked) > 1 and (len(rows) == most or len(of) < len(asked)):
            return {one: (await self._together([one], query, by))[one] for one in asked}
        for row in rows:
            of[row["partition"]].append(row["_id"])
        return {one: of[one[0]] for one in asked}

    async def _read_waiting(self, partitions: list[int]) -> Mapping[int, int]:
        which = {"partition": {"$in": partitions}, "unpublished": True, "waits_for": WAITS}
        counted = [{"$match": which}, {"$group": {"_id": "$partition", "sessions": {"$sum": 1}}}]
        rows = await (await self._sessions.aggregate(counted)).to_list()
        return {row["_id"]: row["sessions"] for row in rows}
