"""Budgets and reservations (invariant reserved-before-asked)."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any

from pymongo import UpdateOne
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.mongo.client import server_time
from eden_memory.mongo.documents import plain, stored
from eden_memory.mongo.indexes import Indexes, index_on
from eden_memory.mongo.transactions import Transactions
from eden_memory.names import Names
from eden_memory.schemas.documents import (
    Budget,
    CountedCall,
    Reservation,
    SessionState,
    UsageState,
    UsageTotal,
    WindowTexts,
)
from eden_memory.usage.budget_rules import (
    HELD,
    Admission,
    Admitted,
    AskedWindow,
    Estimate,
    HeldWindow,
    Per,
    Spending,
    budget_id,
    period_of,
)
from eden_memory.usage.usage_store import STATE, spent_in

Row = dict[str, Any]
BUDGET_INDEXES: Indexes = {
    Reservation.COLLECTION: (index_on("reserved_at", "_id"), index_on("budgets")),
}


class MongoBudgets:
    """The collections `budgets` and `reservations`; `clock` says which day and month it is: MongoDB's own."""

    def __init__(
        self,
        database: AsyncDatabase[Row],
        names: Names,
        clock: Callable[[], Awaitable[datetime]] | None = None,
    ) -> None:
        self._transactions = Transactions(database.client)
        self.now = clock or partial(server_time, database.client)
        self._budgets = database[names[Budget.COLLECTION]]
        self._reservations = database[names[Reservation.COLLECTION]]
        self._totals = database[names[UsageTotal.COLLECTION]]
        self._state = database[names[UsageState.COLLECTION]]

    async def prepare(self) -> None:
        """Create the indexes."""
        await self._reservations.create_indexes(list(BUDGET_INDEXES[Reservation.COLLECTION]))

    async def set(
        self, agent_id: str | None, user_id: str | None, per: Per, limit: Decimal, by: str
    ) -> Spending:
        """Make a budget, or change its limit; what was spent in its period before counts too."""
        now = await self.now()
        row: Row = {
            "agent_id": agent_id,
            "user_id": user_id,
            "per": per,
            "limit_usd": stored(limit),
            "set_at": now,
            "set_by": by,
        }
        name = budget_id(agent_id, user_id, per)

        async def put(session: AsyncClientSession) -> Spending:
            known = await self._budgets.find_one({"_id": name}, session=session)
            row["reserved_usd"] = stored(await self._reserved(session, name))
            merged: Row = {"_id": name, "period": "", **(known or {}), **row}
            found = await self._reckoned(session, merged, now)
            row["period"], row["spent_usd"] = found.period, stored(found.spent)
            await self._budgets.update_one({"_id": name}, {"$set": row}, upsert=True, session=session)
            return found

        return await self._transactions.run(put)

    async def remove(self, name: str) -> bool:
        """Whether there was one of this id."""
        return (await self._budgets.delete_one({"_id": name})).deleted_count > 0

    async def all(self) -> list[Spending]:
        """As they are stored; where a period is over, nothing has been counted in the new one yet."""
        rows = await self._budgets.find({}, sort=[("_id", 1)]).to_list()
        if not rows:
            return []
        now = await self.now()
        return [await self._current(row, now) for row in rows]

    async def reserve(
        self, windows: Sequence[AskedWindow], estimates: Mapping[str, Estimate]
    ) -> Mapping[str, Admitted | HeldWindow]:
        """Admit windows in order as long as there is room, and keep back what they may cost."""

        async def put(session: AsyncClientSession) -> Mapping[str, Admitted | HeldWindow]:
            now = await self.now()
            ids = [window.formation_id for window in windows]
            known = await self._reservations.find({"_id": {"$in": ids}}, session=session).to_list()
            budgets = {spending.id: spending for spending in await self._spendings(session, windows, now)}
            admission = Admission(dict(budgets), {row["_id"] for row in known})
            for window in windows:
                admission.ask(window, estimates[window.formation_id])
            await self._asked_again(session, [row["_id"] for row in known], now)
            await self._keep(session, windows, admission, now)
            changed = [
                budget
                for budget in admission.budgets.values()
                if budget.reserved != budgets[budget.id].reserved
            ]
            if changed:
                updates = [
                    _add_reserved(spending.id, spending.reserved - budgets[spending.id].reserved)
                    for spending in changed
                ]
                await self._budgets.bulk_write(updates, session=session)
            return admission.results

        return await self._transactions.run(put)

    async def open(self, after: Mapping[str, Any] | None, most: int) -> list[Row]:
        """Reservations, the oldest first, from behind `after` on."""
        order = [("reserved_at", 1), ("_id", 1)]
        return await self._reservations.find(_behind(after), sort=order, limit=most).to_list()

    async def complete(self, formation_ids: Iterable[str]) -> None:
        """All calls of these are counted: only what a consolidation may cost stays reserved."""
        wanted: Row = {"_id": {"$in": list(formation_ids)}, "complete_at": None}
        await self._reduce(wanted, complete_at=await self.now())

    async def release(
        self, formation_ids: Iterable[str], *, since: tuple[datetime, datetime] | None = None
    ) -> None:
        """Nothing more is expected of these; with two times, only of those that nobody asked for between them."""
        wanted: Row = {"_id": {"$in": list(formation_ids)}}
        if since is not None:
            wanted["reserved_at"] = {"$not": {"$gte": since[0], "$lte": since[1]}}
        await self._reduce(wanted, complete_at=None)

    async def _asked_again(
        self, session: AsyncClientSession, formation_ids: Sequence[str], now: datetime
    ) -> None:
        """Whoever takes them for lost meets this write."""
        if formation_ids:
            again = {"$set": {"reserved_at": now}}
            await self._reservations.update_many({"_id": {"$in": formation_ids}}, again, session=session)

    async def _reduce(self, wanted: Row, *, complete_at: datetime | None) -> None:

        async def put(session: AsyncClientSession) -> None:
            rows = await self._reservations.find(wanted, session=session).to_list()
            freed: dict[str, Decimal] = {}
            for row in rows:
                left = plain(row["after_usd"]) if complete_at is not None else Decimal(0)
                for name in row["budgets"]:
                    freed[name] = freed.get(name, Decimal(0)) + plain(row["usd"]) - left
            updates = [_add_reserved(name, -amount) for name, amount in sorted(freed.items()) if amount]
            if updates:
                await self._budgets.bulk_write(updates, session=session)
            if rows and complete_at is not None:
                change = [{"$set": {"usd": "$after_usd", "complete_at": complete_at}}]
                await self._reservations.update_many(wanted, change, session=session)
            elif rows:
                await self._reservations.delete_many(wanted, session=session)

        await self._transactions.run(put)

    async def _keep(
        self, session: AsyncClientSession, windows: Sequence[AskedWindow], admission: Admission, now: datetime
    ) -> None:
        rows = [
            _reservation(window, result, now)
            for window in windows
            if isinstance(result := admission.results[window.formation_id], Admitted) and result.budgets
        ]
        if rows:
            await self._reservations.insert_many(rows, session=session)

    async def _spendings(
        self, session: AsyncClientSession, windows: Sequence[AskedWindow], now: datetime
    ) -> list[Spending]:
        """The budgets that concern any of these; one that stands in another period than now's is added up anew."""
        pairs = {(window.agent_id, window.user_id) for window in windows}
        agents, users = {agent for agent, _ in pairs}, {user for _, user in pairs}
        concerned: Row = {
            "agent_id": {"$in": [None, *agents]},
            "user_id": {"$in": [None, *(user for user in users if user is not None)]},
        }
        rows = await self._budgets.find(concerned, sort=[("_id", 1)], session=session).to_list()
        found: list[Spending] = []
        for row in rows:
            if period_of(row["per"], now) == row["period"]:
                found.append(_spending(row))
            else:
                found.append(await self._begun_anew(session, row, now))
        return found

    async def _begun_anew(self, session: AsyncClientSession, row: Row, now: datetime) -> Spending:
        reckoned = await self._reckoned(session, row, now)
        change = {"period": reckoned.period, "spent_usd": stored(reckoned.spent)}
        await self._budgets.update_one({"_id": row["_id"]}, {"$set": change}, session=session)
        return reckoned

    async def _reckoned(self, session: AsyncClientSession, row: Row, now: datetime) -> Spending:
        """Return a budget with its current period's totals; conflicts with a call that is counted meanwhile."""
        await self._state.update_one(STATE, {"$inc": {"reckoned": 1}}, upsert=True, session=session)
        period = period_of(row["per"], now)
        spent = await spent_in(self._totals, row, period, session)
        return _spending({**row, "period": period, "spent_usd": spent})

    async def _reserved(self, session: AsyncClientSession, name: str) -> Decimal:
        rows = await self._reservations.find({"budgets": name}, {"usd": 1}, session=session).to_list()
        return sum((plain(row["usd"]) for row in rows), Decimal(0))

    async def _current(self, row: Row, now: datetime) -> Spending:
        """As it is stored; one that stands in a period to come, by a clock that was wrong, is brought back."""
        period = period_of(row["per"], now)
        if row["period"] > period:
            return await self._transactions.run(lambda session: self._begun_anew(session, row, now))
        return _spending(row if period == row["period"] else {**row, "period": period, "spent_usd": None})


def _behind(row: Mapping[str, Any] | None) -> Row:
    if row is None:
        return {}
    at = row["reserved_at"]
    return {"$or": [{"reserved_at": {"$gt": at}}, {"reserved_at": at, "_id": {"$gt": row["_id"]}}]}


def _add_reserved(name: str, amount: Decimal) -> UpdateOne:
    return UpdateOne({"_id": name}, {"$inc": {"reserved_usd": stored(amount)}})


def _spending(row: Row) -> Spending:
    return Spending(
        id=row["_id"],
        per=row["per"],
        limit=plain(row["limit_usd"]),
        period=row["period"],
        spent=plain(row.get("spent_usd")),
        reserved=plain(row.get("reserved_usd")),
        agent_id=row["agent_id"],
        user_id=row["user_id"],
    )


def _reservation(window: AskedWindow, admitted: Admitted, at: datetime) -> Row:
    estimate = admitted.estimate or Estimate(None)
    usd = estimate.reserved
    return {
        "_id": window.formation_id,
        "session_id": window.session_id,
        "agent_id": window.agent_id,
        "user_id": window.user_id,
        "budgets": list(admitted.budgets),
        "usd": stored(usd),
        "estimated_usd": None if estimate.usd is None else stored(usd),
        "after_usd": stored(min(usd, estimate.after)),
        "reserved_at": at,
        "complete_at": None,
    }


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
