"""What budgets show."""

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


def _budget_label(one: Spending, own: Set[str]) -> str:
    if one.user_id is not None:
        return "users"
    return one.agent_id or "all" if one.id in own else "others"


def _limit(one: Spending) -> float:
    return float(one.limit)


class BudgetMetrics:
    """What budgets show."""

    def held_back(self, windows: int) -> None:
        """So many windows were held back that were not before."""
        BUDGET_HELD_BACK.inc(windows)

    def unpriced(self, windows: int) -> None:
        """So many went on under a budget though nobody knows what they cost."""
        BUDGET_UNPRICED.inc(windows)

    def cost(self, estimated: float, usd: float) -> None:
        """What a window was expected to cost, and did."""
        if estimated > 0:
            BUDGET_ESTIMATE.observe(usd / estimated)

    def budgets(self, budgets: Sequence[Spending], waiting: int) -> None:
        """As they are now, with how many windows they hold back."""
        BUDGET_WAITING.set(waiting)
        for gauge in (BUDGET_LIMIT, BUDGET_SPENT, BUDGET_RESERVED, BUDGET_REACHED):
            gauge.clear()
        largest = sorted((one for one in budgets if one.user_id is None), key=_limit, reverse=True)
        own = {one.id for one in largest[:MOST_BUDGETS]}
        for one in budgets:
            labels = _budget_label(one, own), one.per
            BUDGET_LIMIT.labels(*labels).inc(float(one.limit))
            BUDGET_SPENT.labels(*labels).inc(float(one.spent))
            BUDGET_RESERVED.labels(*labels).inc(float(one.reserved))
            BUDGET_REACHED.labels(*labels).inc(one.full)
