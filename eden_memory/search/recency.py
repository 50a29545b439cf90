"""What was said lately counts for more: (1 - w) x relevance + w x exp(-age in days / 30). Pure."""

from collections.abc import Sequence
from datetime import datetime
from math import exp

from eden_memory.models.reranking.scored import Scored, best_first

DAYS = 30.0
SECONDS_OF_DAY = 86_400.0


def blended(found: Sequence[Scored], weight: float, asked_at: datetime, days: float = DAYS) -> list[Scored]:
    """`weight` 0 to 1; a fact is as old as its version (`valid_from`), and never younger than new."""
    if weight <= 0:
        return list(found)
    return best_first(
        scored.now("recency", (1 - weight) * scored.score + weight * fresh, fresh)
        for scored, fresh in ((scored, freshness(scored.fact.valid_from, asked_at, days)) for scored in found)
    )


def freshness(stated: datetime, asked_at: datetime, days: float = DAYS) -> float:
    """1 for what is new, 1/e after `days`."""
    age = max(0.0, (asked_at - stated).total_seconds() / SECONDS_OF_DAY)
    return exp(-age / days)
