"""memory.usage → `memory_usage`: adds up tokens and cost per day, agent, user, stage and model; batch form.

A record that comes again finds itself counted (invariant counted-once). The amount reserved for a call stays reserved
until the call is counted, so calls can wait for others.
"""

from collections.abc import Sequence

from eden_memory.metrics import count_usage
from eden_memory.schemas.events import ModelCalled
from eden_memory.stages.gathering import Gathering
from eden_memory.stages.stage import Delivery, Emitted, Gather
from eden_memory.usage.budget_rules import UsageStore


class Usage:
    """Counts the calls of a batch; publishes nothing."""

    def __init__(self, store: UsageStore, gathering: Gathering) -> None:
        self._store, self._gathering = store, gathering

    async def __call__(self, deliveries: Sequence[Delivery]) -> Sequence[Emitted] | Gather:
        """Add up one batch of one partition, unless it may wait for more."""
        if (seconds := self._gathering.left(deliveries)) > 0:
            return Gather(seconds)
        told = [delivery.event for delivery in deliveries if isinstance(delivery.event, ModelCalled)]
        calls = {call.call_id: call for call in reversed(told)}
        counted = await self._store.count(list(calls.values()))
        count_usage(counted, repeated=len(told) - len(counted))
        return ()
