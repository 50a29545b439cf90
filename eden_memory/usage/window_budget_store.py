"""Admits windows under budgets; without budgets, one small read every two seconds.

A window is expected to cost what its agent's windows cost on average lately, by the counted calls.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory import metrics
from eden_memory.logs import LibraryLogger
from eden_memory.metrics import CHARGED
from eden_memory.mongo.documents import plain
from eden_memory.names import Names
from eden_memory.schemas.documents import CountedCall
from eden_memory.usage.budget_rules import HELD, AskedWindow, HeldWindow, Spending, WindowCost, admitted
from eden_memory.usage.budget_store import RecentBudgets
from eden_memory.usage.estimates import PLACES, Estimate, StartValue
from eden_memory.usage.usage_store import LIVE

log = LibraryLogger("eden.budgets")
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
