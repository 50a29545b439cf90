"""What keeps budgets (eden_memory.usage.reservation_release) looks up of windows, sessions and calls."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.mongo.money import plain
from eden_memory.names import Names
from eden_memory.schemas.documents import CountedCall, SessionState, WindowTexts
from eden_memory.usage.budget_rules import HELD

Row = dict[str, Any]


class MongoFormations:
    """Over the collections `windows`, `sessions` and `calls`."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        self._windows = database[names[WindowTexts.COLLECTION]]
        self._sessions = database[names[SessionState.COLLECTION]]
        self._calls = database[names[CountedCall.COLLECTION]]

    async def asked_for(self, formation_ids: Sequence[str]) -> set[str]:
        """Those that were asked for."""
        wanted: Row = {"_id": {"$in": list(formation_ids)}, "requested": {"$ne": None}}
        return {row["_id"] for row in await self._windows.find(wanted, {"_id": 1}).to_list()}

    async def costs(self, call_ids: Iterable[str]) -> Mapping[str, float | None]:
        """Those of the calls that are counted, with their cost in US dollars."""
        wanted = list(call_ids)
        if not wanted:
            return {}
        rows = await self._calls.find({"_id": {"$in": wanted}}, {"cost_usd": 1}).to_list()
        return {
            row["_id"]: None if row["cost_usd"] is None else float(plain(row["cost_usd"])) for row in rows
        }

    async def held_back(self) -> int:
        """Closed windows that budgets hold."""
        held: Row = {"unpublished": True, "waits_for": {"$regex": f"^{HELD}"}}
        counted = {"$size": {"$filter": {"input": "$outbox", "cond": {"$not": "$$this.requested"}}}}
        steps: list[Row] = [{"$match": held}, {"$group": {"_id": None, "windows": {"$sum": counted}}}]
        found = await (await self._sessions.aggregate(steps)).to_list()
        return int(found[0]["windows"]) if found else 0
