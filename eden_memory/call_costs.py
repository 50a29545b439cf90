"""Which model calls cost something that nobody knows."""

from decimal import Decimal

from eden_memory.schemas.events import ModelCalled

CHARGED = frozenset({"answered", "invalid", "truncated"})
"""The outcomes of calls that a provider charges for."""


def unpriced(call: ModelCalled) -> bool:
    """Whether a call was charged for at a price that is not known; one that brought nothing was not."""
    used = call.input_tokens or call.output_tokens
    return call.cost_usd is None and (call.outcome in CHARGED or bool(used))


def known_cost(usd: Decimal, calls: int, unpriced_calls: int, tokens: int) -> Decimal | None:
    """Return a sum's cost in US dollars, or None where the price of nothing in it is known.

    `tokens` without calls are a share of requests that other sums count.
    """
    unknown = unpriced_calls > 0 or (calls == 0 and tokens > 0)
    return None if unknown and not usd else usd
