"""Budgets, what was counted in their periods, and the windows in flight (invariant counted-before-asked).

Periods are those of MongoDB's clock. What was spent is kept by period: one that is over, or one to come that a wrong
clock has begun, changes nothing in the current one.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any

from bson.decimal128 import Decimal128
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.mongo.client import server_time
from eden_memory.mongo.documents import plain, stored
from eden_memory.mongo.transactions import Transactions
from eden_memory.names import Names
from eden_memory.schemas.documents import (
    Budget,
    SessionState,
    UsageState,
    UsageTotal,
    WindowTexts,
)
from eden_memory.usage.budget_rules import (
    HELD,
    PERIODS,
    Per,
    Spending,
    WindowCost,
    budget_id,
    period_of,
    with_in_flight,
)
from eden_memory.usage.usage_store import LIVE, STATE

Row = dict[str, Any]
WITHOUT_SPENT = dict.fromkeys(("agent_id", "user_id", "per", "limit_usd"), 1)
FRESH_SECONDS = 2.0
"""How long what was read of budgets is used."""
PROMISED_SECONDS = 10.0
"""How long a window that this process admitted counts as in flight before it is read back from MongoDB."""


class MongoBudgets:
    """Over the collections `budgets`, `windows`, `sessions`, `usage`; `clock`: MongoDB's own, if none is given."""

    def __init__(
        self,
        database: AsyncDatabase[Row],
        names: Names,
        clock: Callable[[], Awaitable[datetime]] | None = None,
    ) -> None:
        self._transactions = Transactions(database.client)
        self.now = clock or partial(server_time, database.client)
        self._budgets = database[names[Budget.COLLECTION]]
        self._totals = database[names[UsageTotal.COLLECTION]]
        self._state = database[names[UsageState.COLLECTION]]
        self._windows = database[names[WindowTexts.COLLECTION]]
        self._sessions = database[names[SessionState.COLLECTION]]

    async def set(
        self, agent_id: str | None, user_id: str | None, per: Per, limit: Decimal, by: str
    ) -> Spending:
        """Make a budget, or change its limit; what was counted in its period before counts too. `by`: who asks."""
        name = budget_id(agent_id, user_id, per)
        whose: Row = {"agent_id": agent_id, "user_id": user_id}
        await self._state.update_one(STATE, {"$setOnInsert": {"calls": 0, "reckoned": 0}}, upsert=True)

        async def put(session: AsyncClientSession) -> None:
            now = await self.now()
            await self._state.update_one(STATE, {"$inc": {"reckoned": 1}}, session=session)
            period = period_of(per, now)
            row: Row = {**whose, "per": per, "limit_usd": stored(limit), "set_at": now, "set_by": by}
            row["spent_usd"] = {period: await self._counted(whose, period, session)}
            await self._budgets.update_one({"_id": name}, {"$set": row}, upsert=True, session=session)

        await self._transactions.run(put)
        return (await self.all())[name]

    async def remove(self, name: str) -> bool:
        """Whether there was one of this id."""
        return (await self._budgets.delete_one({"_id": name})).deleted_count > 0

    async def all(self, promised: Mapping[str, WindowCost] | None = None) -> dict[str, Spending]:
        """Return every budget by id, as it stands now.

        `promised`: windows that were admitted, by formation id, and may not be stored yet.
        """
        if await self._budgets.find_one({}, {"_id": 1}) is None:
            return {}
        now = await self.now()
        current = dict.fromkeys((f"spent_usd.{period_of(per, now)}" for per in PERIODS), 1)
        rows = await self._budgets.find({}, WITHOUT_SPENT | current, sort=[("_id", 1)]).to_list()
        windows = {**(promised or {}), **await self.in_flight()}
        return with_in_flight({row["_id"]: _spending(row, now) for row in rows}, windows.values())

    async def in_flight(self) -> dict[str, WindowCost]:
        """Return the windows in flight, by formation id."""
        rows = self._windows.find({"in_flight": {"$exists": True}}, {"in_flight": 1})
        return {row["_id"]: _cost(row["in_flight"]) async for row in rows}

    async def landed(self, formation_ids: Iterable[str]) -> None:
        """Note that all calls of these windows are counted."""
        wanted: Row = {"_id": {"$in": list(formation_ids)}}
        await self._windows.update_many(wanted, {"$unset": {"in_flight": ""}})

    async def held_back(self) -> int:
        """Return how many closed windows budgets hold."""
        held: Row = {"unpublished": True, "waits_for": {"$regex": f"^{HELD}"}}
        waiting = {"$size": {"$filter": {"input": "$outbox", "cond": {"$not": "$$this.requested"}}}}
        steps: list[Row] = [{"$match": held}, {"$group": {"_id": None, "windows": {"$sum": waiting}}}]
        found = await (await self._sessions.aggregate(steps)).to_list()
        return int(found[0]["windows"]) if found else 0

    async def _counted(self, whose: Row, period: str, session: AsyncClientSession) -> Decimal128:
        match: Row = {"namespace": LIVE, "day": {"$gte": period, "$lte": period + "~"}}
        match |= {name: value for name, value in whose.items() if value is not None}
        group: Row = {"_id": None, "spent": {"$sum": "$cost_usd"}}
        cursor = await self._totals.aggregate([{"$match": match}, {"$group": group}], session=session)
        summed = await cursor.to_list()
        return summed[0]["spent"] if summed else stored(Decimal(0))


class RecentBudgets:
    """Budgets as they stood at most two seconds ago, and the windows that this process has admitted since."""

    def __init__(self, budgets: MongoBudgets, fresh_seconds: float = FRESH_SECONDS) -> None:
        self._budgets, self._fresh_seconds = budgets, fresh_seconds
        self._known: dict[str, Spending] = {}
        self._read_at: float | None = None
        self._promised: dict[str, tuple[WindowCost, float]] = {}

    async def read(self) -> Mapping[str, Spending]:
        """Return the budgets by id."""
        now = time.monotonic()
        if self._read_at is None or now - self._read_at > self._fresh_seconds:
            self._promised = {
                name: promise
                for name, promise in self._promised.items()
                if now - promise[1] < PROMISED_SECONDS
            }
            self._known = await self._budgets.all({name: cost for name, (cost, _) in self._promised.items()})
            self._read_at = now
        return self._known

    def promise(self, windows: Mapping[str, WindowCost]) -> None:
        """Count windows as in flight at once, by formation id."""
        new = {name: cost for name, cost in windows.items() if name not in self._promised}
        self._known = with_in_flight(self._known, new.values())
        self._promised |= {name: (cost, time.monotonic()) for name, cost in windows.items()}


def _spending(row: Row, now: datetime) -> Spending:
    per, period = row["per"], period_of(row["per"], now)
    spent = plain(row.get("spent_usd", {}).get(period))
    return Spending(
        row["_id"],
        per,
        plain(row["limit_usd"]),
        period,
        spent,
        agent_id=row["agent_id"],
        user_id=row["user_id"],
    )


def _cost(row: Row) -> WindowCost:
    return WindowCost(row["agent_id"], row["user_id"], plain(row["usd"]))
