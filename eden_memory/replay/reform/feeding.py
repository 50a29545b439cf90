"""Closed windows → memory.formations of a reform, in order, so many at a time and as long as the cap allows.

What was fed before a crash is fed again: the same records, which the ledger knows. Of the models' calls, kept answers
count as reused; all calls are counted at once."""

import asyncio
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from eden_memory.logs import LibraryLogger
from eden_memory.models.stored_answers import AnswerStore, Forwarding
from eden_memory.replay.reform.reform_settings import PlannedWindow, in_order, planned, takes
from eden_memory.schemas.documents import Answer, ReformAsked
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import FormationRequested, ModelCalled, decode
from eden_memory.stages.codec import TopicOf, record_of
from eden_memory.stages.outcome import Ledger, Publishing, StoredRecord
from eden_memory.stages.patience import until_done
from eden_memory.usage.budget_rules import UsageStore
from eden_memory.usage.formation_completion import complete
from eden_memory.windows.formation_requests import StoredWindow, Windows

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


ENOUGH = 5
"""Windows formed, from which their own average is believed."""
log = LibraryLogger()
TOGETHER = 500
LOOK_SECONDS = 0.1


@dataclass(slots=True)
class ReformCap:
    """The cap, held against what is spent and what the windows in progress are expected to cost; US dollars.

    Nothing is reserved: what is in progress when the cap is reached is finished.
    """

    message_usd: Decimal
    """What a message was expected to cost before."""
    spent: Callable[[], Decimal]
    limit: Decimal | None = None
    """None: there is no cap."""
    formed: int = 0
    """Windows that are complete."""
    messages: int = 0
    """Of those."""

    def expected_usd(self, window: PlannedWindow) -> Decimal:
        """Return a window's cost by what this reform has paid for its windows so far, else as expected before."""
        if self.formed < ENOUGH or not self.messages:
            return self.message_usd * window.messages
        return max(self.spent() / self.formed, self.spent() * window.messages / self.messages)

    def has_room_for(self, window: PlannedWindow, fed: Iterable[PlannedWindow]) -> bool:
        """Return whether there is room for a window beside all that is in progress."""
        if self.limit is None:
            return True
        return self.spent() + sum(map(self.expected_usd, (*fed, window)), Decimal(0)) <= self.limit


@dataclass(slots=True)
class Feeding:
    """Knows every window of a reform; `run` returns when all are formed, or the cap is reached."""

    asked: ReformAsked
    stored: Windows
    ledger: Ledger
    publisher: Publishing
    topic_of: TopicOf
    cap: ReformCap
    at_once: int
    """Windows on their way at most; with 1 nothing of another is under way either."""
    settled: Callable[[], Awaitable[None]]
    """Returns once nothing that follows from windows is left to do; waited for between two windows of `at_once` 1."""
    written: Callable[[FormationRequested], FormationRequested] = lambda asked: asked
    """Changes a request before it is published."""
    room: Callable[[], int] | None = None
    """How many may be on their way now, at least 1; None: always `at_once`."""
    heard: Collection[str] = ()
    """The large sessions' generations that the reform's user has heard."""
    missing: int = 0
    """Windows whose texts are gone."""
    _known: set[str] = field(default_factory=set[str])
    _waiting: deque[PlannedWindow] = field(default_factory=deque[PlannedWindow])
    _fed: dict[str, PlannedWindow] = field(default_factory=dict[str, PlannedWindow])
    _new: list[PlannedWindow] = field(default_factory=list[PlannedWindow])

    @property
    def known_windows(self) -> int:
        """Those selected, formed or not."""
        return len(self._known)

    async def know(self, windows: AsyncIterable[FormationRequested], times: Mapping[str, datetime]) -> None:
        """All there are; those that are formed already are looked up. `times`: when live asked for them."""
        async for window in windows:
            self.offer(window, times.get(window.formation_id))
        found, self._new = in_order(self._new), []
        for start in range(0, len(found), TOGETHER):
            some = found[start : start + TOGETHER]
            done = await self._complete([window.formation_id for window in some])
            for window in some:
                if window.formation_id in done:
                    self._formed(window)
                else:
                    self._waiting.append(window)

    def offer(self, window: FormationRequested, at: datetime | None = None) -> None:
        """A window that has closed: to be formed if it is selected, once."""
        if takes(self.asked, window, self.heard) and window.formation_id not in self._known:
            self._known.add(window.formation_id)
            self._new.append(planned(window, at))

    async def run(self) -> bool:
        """Until nothing is left to be fed or to be completed; False: at the cap."""
        if self.at_once == 1:
            await self.settled()
        while True:
            self._waiting.extend(in_order(self._new))
            self._new = []
            capped = await self._feed()
            if not self._fed:
                if capped:
                    return False
                if not self._waiting and not self._new:
                    return True
                continue
            await self._look()

    async def _feed(self) -> bool:
        """Feed what there is room for; whether the cap stands in the way of the next."""
        some: list[PlannedWindow] = []
        room = self.at_once if self.room is None else max(1, self.room())
        while self._waiting and len(self._fed) < room:
            if not self.cap.has_room_for(self._waiting[0], self._fed.values()):
                break
            window = self._waiting.popleft()
            self._fed[window.formation_id] = window
            some.append(window)
        await self._publish(some)
        return bool(self._waiting) and len(self._fed) < room

    async def _publish(self, windows: Sequence[PlannedWindow]) -> None:
        if not windows:
            return
        found = await until_done(lambda: self.stored.windows([window.formation_id for window in windows]))
        for window in windows:
            if window.formation_id not in found:
                self.missing += 1
                del self._fed[window.formation_id]
                log.warning("a window is left out: its texts are gone", formation_id=window.formation_id)
        there = [found[window.formation_id] for window in windows if window.formation_id in found]
        records = [self._record(window) for window in there]
        await until_done(lambda: self.publisher.publish(records))

    async def _look(self) -> None:
        """Find out which of those fed are complete, after a while."""
        done = await self._complete(list(self._fed))
        for name in done:
            self._formed(self._fed.pop(name))
        if done and self.at_once == 1:
            await self.settled()
        elif not done:
            await asyncio.sleep(LOOK_SECONDS)

    async def _complete(self, formation_ids: Sequence[str]) -> set[str]:
        return await until_done(lambda: complete(self.ledger, formation_ids))

    def _formed(self, window: PlannedWindow) -> None:
        self.cap.formed += 1
        self.cap.messages += window.messages

    def _record(self, window: StoredWindow) -> StoredRecord:
        """As formation-trigger publishes it."""
        assert window.requested is not None
        asked = self.written(window.requested)
        return record_of(
            asked,
            self.topic_of,
            identity=f"formation/{window.formation_id}",
            source="formation-trigger",
            time=window.closed.at,
            traceparent=window.traceparent,
            value=window.value if asked is window.requested else None,
        )
