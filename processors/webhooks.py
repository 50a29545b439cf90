"""memory.facts, memory.reflections → `webhook_notices`: what webhooks are told; batch form, nothing is published.

A notice is stored before the offset is committed, and sent from there (eden_memory.webhooks.webhook_sending): however
slow a receiver is, it holds back nothing here. A redelivery stores the same notices.
"""

from collections.abc import Callable, Sequence
from datetime import datetime

from eden_memory.stages.stage import Delivery, Emitted
from eden_memory.webhooks.webhook_rules import NoticeStore, notices_of


class WebhookStage:
    """`clock`: the wall's."""

    def __init__(self, store: NoticeStore, clock: Callable[[], datetime]) -> None:
        self._store, self._clock = store, clock

    async def __call__(self, deliveries: Sequence[Delivery]) -> Sequence[Emitted]:
        """Write down what webhooks are told of one batch of a partition."""
        if webhooks := await self._store.webhooks():
            now = self._clock()
            found = (notice for delivery in deliveries for notice in notices_of(delivery, webhooks, now))
            await self._store.add(list({notice.id: notice for notice in found}.values()))
        return ()
