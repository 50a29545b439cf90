"""Decides whether budgets have room for a window; without budgets, one small read every two seconds.

A window is estimated by what its agent's formation cost lately, from the counted calls.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory import metrics
from eden_memory.call_costs import CHARGED
from eden_memory.logs import LibraryLogger
from eden_memory.mongo.documents import plain
from eden_memory.names import Names
from eden_memory.schemas.documents import CountedCall, WindowTexts
from eden_memory.usage.budget_rules import HELD, Admitted, AskedWindow, Estimate, HeldWindow, Spending
from eden_memory.usage.budget_store import MongoBudgets
from eden_memory.usage.estimates import RecordedCost, estimate
from eden_memory.usage.usage_store import LIVE

log = LibraryLogger("eden.budgets")
FRESH_SECONDS = 2.0
"""How long what was read of budgets is used."""
MOST_REFUSED = 100_000
"""Sessions of which it is known why they wait; beyond, all are asked about once more."""
RECORDED_SECONDS = 60.0
"""How long what an agent's formations cost lately is used."""
Row = dict[str, Any]
LATELY = timedelta(days=7)
MOST_CALLS = 1_000
FORMING = ("fact-extraction", "fact-dedup", "reflection-extraction")
CONSOLIDATION = "consolidation"


class MongoRecorded:
    """Over the collections `calls` and `windows`."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        self._calls = database[names[CountedCall.COLLECTION]]
        self._windows = database[names[WindowTexts.COLLECTION]]

    async def of(self, agent_id: str, at: datetime) -> RecordedCost:
        """The last formations of an agent: windows, characters, cost; the oldest of them may be cut."""
        wanted: Row = {
            "agent_id": agent_id,
            "namespace": LIVE,
            "stage": {"$in": [*FORMING, CONSOLIDATION]},
            "started_at": {"$gte": at - LATELY},
        }
        fields = dict.fromkeys(("stage", "formation_id", "cost_usd", "input_tokens", "outcome"), 1)
        rows = await self._calls.find(wanted, fields, sort=[("started_at", -1)], limit=MOST_CALLS).to_list()
        formations = {row["formation_id"] for row in rows if row["stage"] == FORMING[0]} - {None}
        return RecordedCost(
            windows=len(formations),
            characters=await self._characters(formations),
            usd=_sum(rows, FORMING),
            consolidation_usd=_sum(rows, (CONSOLIDATION,)),
            priced=not any(
                row["cost_usd"] is None and row["input_tokens"] and row["outcome"] in CHARGED for row in rows
            ),
        )

    async def _characters(self, formations: set[str]) -> int:
        wanted: Row = {"_id": {"$in": list(formations)}, "requested": {"$ne": None}}
        rows = await self._windows.find(wanted, {"requested": 1}).to_list()
        return sum(int(json.loads(row["requested"])["characters"]) for row in rows)


def _sum(rows: list[Row], stages: tuple[str, ...]) -> Decimal:
    return sum((plain(row["cost_usd"]) for row in rows if row["stage"] in stages), Decimal(0))


class MongoWindowBudgets:
    """eden_memory.usage.budget_rules.WindowBudgets; `start` gives what a window costs while nothing is recorded."""

    def __init__(
        self,
        budgets: MongoBudgets,
        recorded: MongoRecorded,
        start: Callable[[int, int], Estimate],
        *,
        fresh_seconds: float = FRESH_SECONDS,
    ) -> None:
        self._budgets, self._recorded, self._start = budgets, recorded, start
        self._fresh_seconds = fresh_seconds
        self._known: dict[str, Spending] = {}
        self._read_at: float | None = None
        self._refused: dict[str, Spending] = {}
        """By session: the budget that held its window back, as it stood then."""
        self._costs: dict[str, tuple[float, RecordedCost]] = {}
        self._seen: set[str] = set()

    def still_held(self, session_id: str, waits_for: str | None) -> bool:
        """Whether a session waits for a budget of which nothing has changed since it held its window back."""
        refused = self._refused.get(session_id)
        if refused is None or waits_for != HELD + refused.id:
            return False
        return refused == self._known.get(refused.id)

    async def any(self) -> bool:
        """Whether there is a budget at all; read anew every two seconds."""
        if self._read_at is None or time.monotonic() - self._read_at > self._fresh_seconds:
            self._known = {spending.id: spending for spending in await self._budgets.all()}
            self._read_at = time.monotonic()
        return bool(self._known)

    async def admit(self, windows: Sequence[AskedWindow]) -> Mapping[str, Admitted | HeldWindow]:
        """Reserve what each window may cost, in order."""
        concerned = [window for window in windows if self._concerned(window)]
        results: dict[str, Admitted | HeldWindow] = {window.formation_id: Admitted() for window in windows}
        if concerned:
            estimates = {
                asked_window.formation_id: await self._estimate(asked_window) for asked_window in concerned
            }
            results |= await self._budgets.reserve(concerned, estimates)
            self._remember(concerned, results)
            self._note(results)
            self._read_at = None
        return results

    def _concerned(self, window: AskedWindow) -> bool:
        return any(spending.concerns(window.agent_id, window.user_id) for spending in self._known.values())

    async def _estimate(self, window: AskedWindow) -> Estimate:
        kept = self._costs.get(window.agent_id)
        if kept is None or time.monotonic() - kept[0] > RECORDED_SECONDS:
            now = await self._budgets.now()
            kept = time.monotonic(), await self._recorded.of(window.agent_id, now)
            self._costs[window.agent_id] = kept
        return estimate(kept[1], self._start(window.tier, window.characters), window.characters)

    def _remember(self, windows: Sequence[AskedWindow], results: Mapping[str, Admitted | HeldWindow]) -> None:
        if len(self._refused) > MOST_REFUSED:
            self._refused.clear()
        for window in windows:
            result = results[window.formation_id]
            if isinstance(result, HeldWindow) and result.seen is not None:
                self._refused[window.session_id] = result.seen
            else:
                self._refused.pop(window.session_id, None)

    def _note(self, results: Mapping[str, Admitted | HeldWindow]) -> None:
        held = {name: result for name, result in results.items() if isinstance(result, HeldWindow)}
        if new := held.keys() - self._seen:
            metrics.BUDGET_HELD_BACK.inc(len(new))
            for budget in sorted({held[name].budget for name in new}):
                log.warning("budget holds windows back", budget=budget, windows=len(new))
        unpriced = [
            name
            for name, admitted in results.items()
            if isinstance(admitted, Admitted)
            and admitted.budgets
            and admitted.estimate
            and admitted.estimate.usd is None
        ]
        if unpriced:
            metrics.BUDGET_UNPRICED.inc(len(unpriced))
            log.warning("windows go on under a budget though their price is unknown", windows=len(unpriced))
        self._seen = (self._seen - results.keys()) | held.keys()
