"""Intercepts what a reform's stages publish: calls are counted at once, closed windows wait until they are fed."""

import asyncio
from collections.abc import Callable, Sequence
from decimal import Decimal

from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import FormationRequested, ModelCalled, decode
from eden_memory.stages.codec import TopicOf
from eden_memory.stages.outcome import Publishing, StoredRecord
from eden_memory.usage.call_totals import UsageStore


class InterceptingPublisher:
    """In the place of the publisher.

    `offer` is told of each window that formation-trigger would ask for, `counted` of each call that stands in the
    totals.

    Calls are in the totals before anybody reads of them, so that a cap holds whether or not the usage stage runs.
    """

    def __init__(
        self,
        publisher: Publishing,
        usage: UsageStore,
        topic_of: TopicOf,
        *,
        spent: Decimal = Decimal(0),
        paid: int = 0,
    ) -> None:
        self._publisher, self._usage = publisher, usage
        self.offer: Callable[[FormationRequested], None] = _nobody
        self.counted: Callable[[ModelCalled], None] = _not_kept_back
        self._calls, self._windows = topic_of(ModelCalled), topic_of(FormationRequested)
        self._uncounted: dict[str, ModelCalled] = {}
        self._counting = asyncio.Lock()
        self.spent, self.paid = spent, paid
        """By this reform: US dollars, and calls that were charged for or failed."""

    async def publish(self, records: Sequence[StoredRecord]) -> None:
        """Publish, count or keep back."""
        calls = [
            _event(record) for record in records if record.topic == self._calls and record.value is not None
        ]
        await self._count([call for call in calls if isinstance(call, ModelCalled)])
        await self._publisher.publish([record for record in records if record.topic != self._windows])
        for record in records:
            if record.topic == self._windows and isinstance(window := _event(record), FormationRequested):
                self.offer(window)

    async def _count(self, calls: Sequence[ModelCalled]) -> None:
        """Calls that wait while others are counted are counted together: all change the same few totals."""
        if not calls:
            return
        self._uncounted |= {call.call_id: call for call in calls}
        async with self._counting:
            waiting, self._uncounted = self._uncounted, {}
            try:
                counted = await self._usage.count(list(waiting.values())) if waiting else ()
            except BaseException:
                self._uncounted = waiting | self._uncounted
                raise
        for call in counted:
            self.spent += call.cost_usd or 0
            self.paid += 1
        for call in waiting.values():
            self.counted(call)


def _not_kept_back(call: ModelCalled) -> None:
    """Nothing was kept back for a call."""


def _nobody(window: FormationRequested) -> None:
    """Nobody waits for windows yet."""
    raise RuntimeError(f"nobody takes {window.formation_id}")


def _event(record: StoredRecord) -> object:
    envelope = Envelope.of_headers(record.headers)
    return decode(envelope.name, envelope.version, record.value or b"")
