"""Lets go of what was reserved for windows whose formation is complete and whose calls are all counted.

Complete is a formation when the ledger has what fact extraction, fact-dedup and reflection extraction decided of it;
the calls that led there stand in the same outcomes, and each of them must be in the totals. Beside formation-trigger,
in each of its processes: doing it twice changes nothing.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from typing import Any

from eden_memory import metrics
from eden_memory.logs import LibraryLogger
from eden_memory.schemas.events import ModelCalled
from eden_memory.stages.outcome import Ledger, StageOutcome
from eden_memory.stages.patience import until_done
from eden_memory.stages.process import State
from eden_memory.task_ending import run_until_first
from eden_memory.usage.budget_rules import Spending
from eden_memory.usage.budget_store import MongoBudgets, MongoFormations
from eden_memory.usage.formation_completion import named, outcomes_of

log = LibraryLogger("eden.budgets")
TOGETHER = 200
EVERY_SECONDS, IDLE_ROUNDS = 2.0, 5
"""Between two rounds; and so many times as long while there are neither budgets nor reservations."""
SETTLE = timedelta(seconds=30)
"""A consolidation that a formation leads to is paid within this time, as a rule."""
NEVER_ASKED = timedelta(minutes=10)
"""A reservation whose window is not stored, or was not asked for, is of an attempt that came to nothing."""
MOST_BUDGETS = 50
"""Budgets that have a label of their own; the others, and all of single users, stand together."""


class BudgetKeeping:
    """A part of a process; `settle`: how long what a consolidation may cost stays reserved."""

    name = "budgets"

    def __init__(
        self,
        reservations: MongoBudgets,
        formations: MongoFormations,
        ledger: Ledger,
        settle: timedelta = SETTLE,
        every: float = EVERY_SECONDS,
    ) -> None:
        self._reservations, self._formations, self._ledger = reservations, formations, ledger
        self._settle, self._every = settle, every
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
            used = await until_done(self._round)
            await asyncio.sleep(self._every if used else IDLE_ROUNDS * self._every)

    async def _round(self) -> bool:
        return await self.round(await self._reservations.now())

    async def round(self, now: datetime) -> bool:
        """Look at every reservation once, and show how budgets stand; return whether there is any of either."""
        after: Mapping[str, Any] | None = None
        while rows := await self._reservations.open(after, TOGETHER):
            await self._look(rows, now)
            after = rows[-1]
        budgets = await self._reservations.all()
        waiting = await self._formations.held_back() if budgets else 0
        _show(budgets, waiting)
        self._standing = f"{len(budgets)} budgets, {waiting} windows held back" if budgets else "no budgets"
        return bool(budgets) or after is not None

    async def _look(self, rows: Sequence[Mapping[str, Any]], now: datetime) -> None:
        done = [row for row in rows if row["complete_at"] is not None]
        settled = [row["_id"] for row in done if abs(now - row["complete_at"]) >= self._settle]
        pending = [row for row in rows if row["complete_at"] is None]
        ended, lost = await self._ended(pending, now)
        if ended:
            await self._reservations.complete(ended)
        if settled:
            await self._reservations.release(settled)
        if lost:
            await self._reservations.release(lost, since=(now - NEVER_ASKED, now + NEVER_ASKED))

    async def _ended(self, rows: Sequence[Mapping[str, Any]], now: datetime) -> tuple[list[str], list[str]]:
        """Those that are complete and counted, and those that were never asked for."""
        outcomes = await outcomes_of(self._ledger, [row["_id"] for row in rows])
        calls = {name: _calls(found) for name, found in outcomes.items() if found is not None}
        costs = await self._formations.costs({call for named in calls.values() for call in named})
        ended = [name for name, named in calls.items() if named <= costs.keys()]
        for row in rows:
            if row["_id"] in ended and row["estimated_usd"]:
                paid = sum(costs[call] or 0.0 for call in calls[row["_id"]])
                estimated = float(str(row["estimated_usd"])) - float(str(row["after_usd"]))
                if estimated > 0:
                    metrics.BUDGET_ESTIMATE.observe(paid / estimated)
        old = [row["_id"] for row in rows if abs(now - row["reserved_at"]) > NEVER_ASKED]
        asked = await self._formations.asked_for(old) if old else set[str]()
        return ended, [name for name in old if name not in asked]


def _calls(outcomes: Iterable[StageOutcome]) -> set[str]:
    """The calls that led to these; where records are removed already, they were counted long ago."""
    records = [record for outcome in outcomes for record in outcome.records]
    return {
        (record.key or b"").decode() for record in records if named(record.headers)[0] == ModelCalled.NAME
    }


def _show(budgets: Sequence[Spending], waiting: int) -> None:
    """Show how budgets stand now, and how many windows they hold back."""
    metrics.BUDGET_WAITING.set(waiting)
    for gauge in (
        metrics.BUDGET_LIMIT,
        metrics.BUDGET_SPENT,
        metrics.BUDGET_RESERVED,
        metrics.BUDGET_REACHED,
    ):
        gauge.clear()
    largest = sorted((budget for budget in budgets if budget.user_id is None), key=_limit, reverse=True)
    own = {spending.id for spending in largest[:MOST_BUDGETS]}
    for budget in budgets:
        labels = _label(budget, own), budget.per
        metrics.BUDGET_LIMIT.labels(*labels).inc(float(budget.limit))
        metrics.BUDGET_SPENT.labels(*labels).inc(float(budget.spent))
        metrics.BUDGET_RESERVED.labels(*labels).inc(float(budget.reserved))
        metrics.BUDGET_REACHED.labels(*labels).inc(budget.full)


def _limit(spending: Spending) -> float:
    return float(spending.limit)


def _label(spending: Spending, own: Set[str]) -> str:
    if spending.user_id is not None:
        return "users"
    return spending.agent_id or "all" if spending.id in own else "others"
