"""Setting a budget: the amount as people write it, and the collections that it needs."""

from decimal import Decimal, InvalidOperation
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.errors import Invalid
from eden_memory.names import Names
from eden_memory.usage.budget_rules import Per, Spending
from eden_memory.usage.budget_store import MongoBudgets
from eden_memory.usage.usage_store import MongoUsage

LARGEST = Decimal(1_000_000_000)


def limit_of(text: str) -> Decimal:
    """Return US dollars from 0 up, to a millionth; Invalid for anything else."""
    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise Invalid(f"{text!r} is not an amount", "Give US dollars: 5, 0.25.") from None
    if not amount.is_finite() or not 0 <= amount <= LARGEST:
        raise Invalid(f"a limit cannot be {text} USD", "Give an amount from 0 (nothing is formed) up.")
    return amount.quantize(Decimal("0.000001")).normalize()


async def set_budget(
    database: AsyncDatabase[dict[str, Any]],
    names: Names,
    whose: tuple[str | None, str | None, Per],
    limit: Decimal,
    by: str,
) -> Spending:
    """Make or change the budget of an agent and user (typed; None: all), per day or month; `by`: who asks."""
    await MongoUsage(database, names).prepare()
    budgets = MongoBudgets(database, names)
    await budgets.prepare()
    return await budgets.set(*whose, limit, by)
