"""Budgets: what was counted in their periods, windows in flight, and which windows may be formed.

Periods are those of MongoDB's clock. What was spent is kept by period: one that is over, or one to come that a wrong
clock has begun, changes nothing in the current one.

A window is expected to cost what its agent's windows cost on average lately, by the counted calls.

A formation is complete when the ledger has what fact extraction, fact-dedup and reflection extraction decided of it;
the calls that led there stand in the same outcomes, and each of them must be in the totals. Beside formation-trigger,
in each of its processes: doing it twice changes nothing.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

from bson.decimal128 import Decimal128
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory import metrics
from eden_memory.logs import LibraryLogger
from eden_memory.metrics import CHARGED
from eden_memory.mongo.client import server_time
from eden_memory.mongo.documents import plain, stored
from eden_memory.mongo.transactions import Transactions
from eden_memory.names import Names
from eden_memory.schemas.documents import (
    Budget,
    CountedCall,
    SessionState,
    UsageState,
    UsageTotal,
    WindowTexts,
)
from eden_memory.schemas.events import ModelCalled
from eden_memory.stages.outcome import Ledger, StageOutcome
from eden_memory.stages.patience import until_done
from eden_memory.stages.process import State
from eden_memory.tasks import run_until_first
from eden_memory.usage.budget_rules import (
    HELD,
    PERIODS,
    AskedWindow,
    HeldWindow,
    Per,
    Spending,
    WindowCost,
    admitted,
    budget_id,
    period_of,
    with_in_flight,
)
from eden_memory.usage.costs import PLACES, Estimate, StartValue
from eden_memory.usage.formation_completion import named, outcomes_of
from eden_memory.usage.usage_store import LIVE, STATE, MongoUsage

log = LibraryLogger("eden.budgets")


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


AVERAGE_SECONDS = 60.0
"""How long the average cost of an agent's windows is used."""
ENOUGH = 5
"""Formations counted, from which their average is believed."""
LATELY = timedelta(days=7)
MOST_CALLS = 1_000
Clock = Callable[[], Awaitable[datetime]]
FORMING_STAGES = ("fact-extraction", "fact-dedup", "reflection-extraction", "consolidation")


class AverageCosts:
    """Reads what the windows of an agent cost lately from the counted calls."""

    def __init__(self, database: AsyncDatabase[dict[str, Any]], names: Names, clock: Clock) -> None:
        self._calls, self._clock = database[names[CountedCall.COLLECTION]], clock

    async def of(self, agent_id: str) -> Estimate | None:
        """Return the average over an agent's last 1,000 calls of 7 days; None with fewer than 5 formations."""
        wanted = {
            "agent_id": agent_id,
            "namespace": LIVE,
            "stage": {"$in": list(FORMING_STAGES)},
            "started_at": {"$gte": await self._clock() - LATELY},
        }
        fields = dict.fromkeys(("stage", "formation_id", "cost_usd", "input_tokens", "outcome"), 1)
        rows = await self._calls.find(wanted, fields, sort=[("started_at", -1)], limit=MOST_CALLS).to_list()
        formations = {row["formation_id"] for row in rows if row["stage"] == FORMING_STAGES[0]} - {None}
        if len(formations) < ENOUGH:
            return None
        usd = sum((plain(row["cost_usd"]) for row in rows), Decimal(0)) / len(formations)
        unpriced = any(
            row["cost_usd"] is None and row["input_tokens"] and row["outcome"] in CHARGED for row in rows
        )
        return Estimate(usd.quantize(PLACES), not unpriced)


class MongoWindowBudgets:
    """eden_memory.usage.budget_rules.WindowBudgets; `start` says what a window costs while few are counted."""

    def __init__(self, budgets: RecentBudgets, averages: AverageCosts, start: StartValue) -> None:
        self._budgets, self._averages, self._start = budgets, averages, start
        self._known: Mapping[str, Spending] = {}
        self._costs: dict[str, tuple[float, Estimate | None]] = {}
        self._noted: set[str] = set()

    async def any(self) -> bool:
        """Whether there is a budget at all."""
        self._known = await self._budgets.read()
        return bool(self._known)

    def still_held(self, waits_for: str | None) -> bool:
        """Whether a session waits for a budget that still has no room."""
        if waits_for is None or not waits_for.startswith(HELD):
            return False
        budget = self._known.get(waits_for.removeprefix(HELD))
        return budget is not None and budget.room <= 0

    async def admit(self, windows: Sequence[AskedWindow]) -> Mapping[str, WindowCost | HeldWindow]:
        """Admit windows in order while there is room."""
        budgets = await self._budgets.read()
        costs = {window.formation_id: await self._cost(window) for window in windows}
        found = admitted(windows, costs, budgets)
        self._budgets.promise({name: cost for name, cost in found.items() if isinstance(cost, WindowCost)})
        self._note(found)
        return found

    async def _cost(self, window: AskedWindow) -> WindowCost:
        kept = self._costs.get(window.agent_id)
        if kept is None or time.monotonic() - kept[0] > AVERAGE_SECONDS:
            kept = self._costs[window.agent_id] = time.monotonic(), await self._averages.of(window.agent_id)
        average = kept[1] or self._start(window.tier, window.characters)
        return WindowCost(window.agent_id, window.user_id, average.known, average.priced)

    def _note(self, found: Mapping[str, WindowCost | HeldWindow]) -> None:
        held = {name: result for name, result in found.items() if isinstance(result, HeldWindow)}
        if new := held.keys() - self._noted:
            metrics.BUDGET_HELD_BACK.inc(len(new))
            for budget in sorted({held[name].budget for name in new}):
                log.warning("budget holds windows back", budget=budget, windows=len(new))
        if unpriced := sum(isinstance(cost, WindowCost) and not cost.priced for cost in found.values()):
            metrics.BUDGET_UNPRICED.inc(unpriced)
            log.warning("windows go on under a budget though their price is unknown", windows=unpriced)
        self._noted = (self._noted - found.keys()) | held.keys()


TOGETHER = 200
EVERY_SECONDS, IDLE_ROUNDS = 2.0, 5
"""Between two rounds; and so many times as long while there are neither budgets nor windows in flight."""
MOST_BUDGETS = 50
"""Budgets that have a label of their own; the others, and all of single users, stand together."""


class BudgetKeeping:
    """A part of a process."""

    name = "budgets"

    def __init__(
        self, budgets: MongoBudgets, usage: MongoUsage, ledger: Ledger, every: float = EVERY_SECONDS
    ) -> None:
        self._budgets, self._usage, self._ledger, self._every = budgets, usage, ledger, every
        self._stopping = asyncio.Event()
        self._standing = "no budgets"

    async def run(self) -> None:
        """Until `stop`."""
        await run_until_first(self._rounds(), self._stopping)

    def stop(self) -> None:
        """End `run`."""
        self._stopping.set()

    def state(self) -> State:
        """Never in the way of readiness: a budget that is reached is no fault."""
        return State(True, self._standing)

    async def _rounds(self) -> None:
        while True:
            used = await until_done(self.round)
            await asyncio.sleep(self._every if used else IDLE_ROUNDS * self._every)

    async def round(self) -> bool:
        """Look at every window in flight, and show how budgets stand; return whether there is any of either."""
        flying = list(await self._budgets.in_flight())
        for start in range(0, len(flying), TOGETHER):
            if landed := await self._landed(flying[start : start + TOGETHER]):
                await self._budgets.landed(landed)
        budgets = await self._budgets.all()
        waiting = await self._budgets.held_back() if budgets else 0
        _show(budgets, waiting)
        self._standing = f"{len(budgets)} budgets, {waiting} windows held back" if budgets else "no budgets"
        return bool(budgets or flying)

    async def _landed(self, formation_ids: list[str]) -> list[str]:
        outcomes = await outcomes_of(self._ledger, formation_ids)
        calls = {name: _calls(found) for name, found in outcomes.items() if found is not None}
        counted = await self._usage.counted({call for named in calls.values() for call in named})
        return [name for name, named in calls.items() if named <= counted]


def _calls(outcomes: Iterable[StageOutcome]) -> set[str]:
    """The calls that led to these; where records are removed already, they were counted long ago."""
    records = [record for outcome in outcomes for record in outcome.records]
    return {
        (record.key or b"").decode() for record in records if named(record.headers)[0] == ModelCalled.NAME
    }


def _show(budgets: Mapping[str, Spending], waiting: int) -> None:
    """Show how budgets stand now, and how many windows they hold back."""
    metrics.BUDGET_WAITING.set(waiting)
    for gauge in (
        metrics.BUDGET_LIMIT,
        metrics.BUDGET_SPENT,
        metrics.BUDGET_IN_FLIGHT,
        metrics.BUDGET_REACHED,
    ):
        gauge.clear()
    shared = [(budget.limit, budget.id) for budget in budgets.values() if budget.user_id is None]
    own = {name for _, name in sorted(shared, reverse=True)[:MOST_BUDGETS]}
    for budget in budgets.values():
        name = budget.agent_id or "all" if budget.id in own else "others"
        labels = name if budget.user_id is None else "users", budget.per
        metrics.BUDGET_LIMIT.labels(*labels).inc(float(budget.limit))
        metrics.BUDGET_SPENT.labels(*labels).inc(float(budget.spent))
        metrics.BUDGET_IN_FLIGHT.labels(*labels).inc(float(budget.in_flight))
        metrics.BUDGET_REACHED.labels(*labels).inc(budget.full)
