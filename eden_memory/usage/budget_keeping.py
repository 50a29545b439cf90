"""Lets windows land whose formation is complete and whose calls are all counted, and shows how budgets stand.

A formation is complete when the ledger has what fact extraction, fact-dedup and reflection extraction decided of it;
the calls that led there stand in the same outcomes, and each of them must be in the totals. Beside formation-trigger,
in each of its processes: doing it twice changes nothing.
"""

import asyncio
from collections.abc import Iterable, Mapping

from eden_memory import metrics
from eden_memory.schemas.events import ModelCalled
from eden_memory.stages.outcome import Ledger, StageOutcome
from eden_memory.stages.patience import until_done
from eden_memory.stages.process import State
from eden_memory.tasks import run_until_first
from eden_memory.usage.budget_rules import Spending
from eden_memory.usage.budget_store import MongoBudgets
from eden_memory.usage.formation_completion import named, outcomes_of
from eden_memory.usage.usage_store import MongoUsage

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
