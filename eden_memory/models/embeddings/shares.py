"""One bill split among the texts of an embedding call, so that the shares add up to it."""

from collections.abc import Sequence
from decimal import Decimal

from eden_memory.models.call_accounts import CENTS


def shared(total: int, weights: Sequence[int]) -> list[int]:
    """Whole numbers in proportion to the weights, by largest remainder; their sum is the total."""
    whole = sum(weights)
    if not whole:
        return [total, *([0] * (len(weights) - 1))] if weights else []
    shares = [total * weight // whole for weight in weights]
    by_rest = sorted(range(len(weights)), key=lambda at: (-(total * weights[at] % whole), at))
    for at in by_rest[: total - sum(shares)]:
        shares[at] += 1
    return shares


def shared_cost(total: Decimal | None, weights: Sequence[int]) -> list[Decimal | None]:
    """The same for money, to its smallest part; None stays None."""
    if total is None:
        return [None] * len(weights)
    return [part * CENTS for part in shared(int(total / CENTS), weights)]
