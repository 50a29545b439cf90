"""Calls of a reform's models: kept answers count as reused; all calls are counted at once."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal

from eden_memory.models.stored_answers import AnswerStore, Forwarding
from eden_memory.schemas.documents import Answer
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import FormationRequested, ModelCalled, decode
from eden_memory.stages.codec import TopicOf
from eden_memory.stages.outcome import Publishing, StoredRecord
from eden_memory.usage.budget_rules import UsageStore

MOST_REMEMBERED = 100_000


class CountedReuse(Forwarding):
    """`units`: what the names of one's own questions begin with. Another's answer that was kept first when one's own
    arrived is no reuse: that was paid, too."""

    def __init__(self, answers: AnswerStore, units: str) -> None:
        super().__init__(answers)
        self._units = units
        self._seen: dict[str, None] = {}
        self.reused = 0
        """Answers to questions, vectors apart, each once."""

    async def of_unit(self, unit: str, answer_id: str | None = None) -> Mapping[str, Answer]:
        """As the store; an answer of another's that will do is counted."""
        found = await super().of_unit(unit, answer_id)
        if (
            answer_id is not None
            and answer_id in found
            and not any(answer.unit == unit for answer in found.values())
        ):
            self._count([found[answer_id]])
        return found

    async def find(self, ids: Iterable[str]) -> Mapping[str, Answer]:
        """As the store; answers of others that are found are counted."""
        found = await super().find(ids)
        self._count(found.values())
        return found

    def _count(self, answers: Iterable[Answer]) -> None:
        for answer in answers:
            others = answer.operation == "chat" and not (answer.unit or "").startswith(self._units)
            if others and answer.id not in self._seen:
                if len(self._seen) >= MOST_REMEMBERED:
                    self._seen.clear()
                self._seen[answer.id] = None
                self.reused += 1


class InterceptingPublisher:
    """In the place of the publisher.

    `offer` is told of each window that formation-trigger would ask for. Calls are in the totals before anybody reads
    of them, so that a cap holds whether or not the usage stage runs.
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


def _nobody(window: FormationRequested) -> None:
    """Nobody waits for windows yet."""
    raise RuntimeError(f"nobody takes {window.formation_id}")


def _event(record: StoredRecord) -> object:
    envelope = Envelope.of_headers(record.headers)
    return decode(envelope.name, envelope.version, record.value or b"")
