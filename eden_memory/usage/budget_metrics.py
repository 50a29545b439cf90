"""Metrics of budgets."""

from collections.abc import Sequence, Set

from eden_memory.metrics import (
    BUDGET_ESTIMATE,
    BUDGET_HELD_BACK,
    BUDGET_LIMIT,
    BUDGET_REACHED,
    BUDGET_RESERVED,
    BUDGET_SPENT,
    BUDGET_UNPRICED,
    BUDGET_WAITING,
)
from eden_memory.usage.budget_rules import Spending

MOST_BUDGETS = 50
"""Budgets that have a label of their own; the others, and all of single users, stand together."""


def _budget_label(spending: Spending, own: Set[str]) -> str:
    if spending.user_id is not None:
        return "users"
    return spending.agent_id or "all" if spending.id in own else "others"


def _limit(spending: Spending) -> float:
    return float(spending.limit)


class BudgetMetrics:
    """Counts held windows, and shows how budgets stand."""

    def held_back(self, windows: int) -> None:
        """So many windows were held back that were not before."""
        BUDGET_HELD_BACK.inc(windows)

    def unpriced(self, windows: int) -> None:
        """So many went on under a budget though nobody knows what they cost."""
        BUDGET_UNPRICED.inc(windows)

    def cost(self, estimated: float, usd: float) -> None:
        """Compare a window's estimate with its cost."""
        if estimated > 0:
            BUDGET_ESTIMATE.observe(usd / estimated)

    def budgets(self, budgets: Sequence[Spending], waiting: int) -> None:
        """As they are now, with how many windows they hold back."""
        BUDGET_WAITING.set(waiting)
        for gauge in (BUDGET_LIMIT, BUDGET_SPENT, BUDGET_RESERVED, BUDGET_REACHED):
            gauge.clear()
        largest = sorted((budget for budget in budgets if budget.user_id is None), key=_limit, reverse=True)
        own = {spending.id for spending in largest[:MOST_BUDGETS]}
        for budget in budgets:
            labels = _budget_label(budget, own), budget.per
            BUDGET_LIMIT.labels(*labels).inc(float(budget.limit))
            BUDGET_SPENT.labels(*labels).inc(float(budget.spent))
            BUDGET_RESERVED.labels(*labels).inc(float(budget.reserved))
            BUDGET_REACHED.labels(*labels).inc(budget.full)
