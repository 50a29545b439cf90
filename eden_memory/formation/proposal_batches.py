"""Which proposals of a scope are decided together. Pure."""

from collections.abc import Sequence

from eden_memory.constants import MOST_FACTS_TOGETHER
from eden_memory.schemas.events import FactsProposed
from eden_memory.stages.stage import Delivery


def proposals_together(deliveries: Sequence[Delivery]) -> int:
    """How many waiting records of a scope are decided at once: proposals up to the next command, ≤ 64 facts."""
    facts = 0
    for index, delivery in enumerate(deliveries):
        if not isinstance(delivery.event, FactsProposed):
            return max(index, 1)
        facts += len(delivery.event.facts)
        if facts > MOST_FACTS_TOGETHER:
            return max(index, 1)
    return len(deliveries)
