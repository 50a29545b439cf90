"""The model calls of a running handler, published with what it decided; which calls have an unknown cost."""

from contextvars import ContextVar
from decimal import Decimal

from eden_memory.schemas.events import ModelCalled

CALLS: ContextVar[list[ModelCalled] | None] = ContextVar("model calls of this handler", default=None)


def note(call: ModelCalled) -> None:
    """Add a call to those of the handler that runs; outside of any handler it is let go."""
    calls = CALLS.get()
    if calls is not None:
        calls.append(call)


CHARGED = frozenset({"answered", "invalid", "truncated"})
"""How calls end that a provider charges for."""


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
