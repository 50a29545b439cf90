"""Closed windows → memory.formations of a reform, in order, so many at a time and as long as the cap allows.

What was fed before a crash is fed again: the same records, which the ledger knows.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from eden_memory.logs import LibraryLogger
from eden_memory.replay.reform.reform_plan import CONSOLIDATION
from eden_memory.replay.reform.reform_settings import PlannedWindow, in_order, planned, takes
from eden_memory.schemas.documents import ReformAsked
from eden_memory.schemas.events import FormationRequested, ModelCalled
from eden_memory.stages.codec import TopicOf, record_of
from eden_memory.stages.outcome import Ledger, Publishing, StoredRecord
from eden_memory.stages.patience import until_done
from eden_memory.tasks import end
from eden_memory.usage.formation_completion import complete
from eden_memory.windows.formation_requests import StoredWindow, Windows

ENOUGH = 5
"""Windows formed, or blobs made, from which their own average is believed."""
log = LibraryLogger()
TOGETHER = 500
LOOK_SECONDS = 0.1


@dataclass(slots=True)
class ReformCap:
    """The cap, and the amounts reserved of it; US dollars."""

    message_usd: Decimal
    consolidation_usd: Decimal
    """What a message, and a consolidation, were expected to cost before."""
    spent: Callable[[], Decimal]
    limit: Decimal | None = None
    """None: there is no cap."""
    formed: int = 0
    """Windows that are complete."""
    messages: int = 0
    """Of those."""
    _held_by_scope: dict[str, Decimal] = field(default_factory=dict[str, Decimal])
    """Scopes whose consolidation is asked for now, and the amount held for each."""
    _refused: set[str] = field(default_factory=set[str])
    """Scopes whose consolidation waits for room."""
    _held_for_windows: Decimal = Decimal(0)
    """For those on their way, as they were when one was last looked at."""
    _consolidation_costs: list[Decimal] = field(default_factory=list[Decimal])
    """Of those that are counted."""

    def expected_usd(self, window: PlannedWindow) -> Decimal:
        """Return a window's cost by what this reform has paid for its windows so far, else as expected before."""
        if self.formed < ENOUGH or not self.messages:
            return self.message_usd * window.messages
        return max(self.spent() / self.formed, self.spent() * window.messages / self.messages)

    def has_room_for(self, window: PlannedWindow, fed: Iterable[PlannedWindow]) -> bool:
        """Return whether there is room for a window beside all that is on its way."""
        if self.limit is None:
            return True
        windows = sum(map(self.expected_usd, (*fed, window)), Decimal(0))
        return self.spent() + windows + sum(self._held_by_scope.values()) <= self.limit

    def hold_for_windows(self, fed: Iterable[PlannedWindow]) -> None:
        """Hold what these windows are expected to cost, and nothing for others."""
        self._held_for_windows = (
            Decimal(0) if self.limit is None else sum(map(self.expected_usd, fed), Decimal(0))
        )

    def reserve_consolidation(self, unit: str) -> bool:
        """Hold the expected cost of a consolidation (`KEY@VERSION:ATTEMPT`); False: there is no room."""
        scope = unit.rpartition("@")[0]
        if self.limit is None:
            return True
        others = sum((usd for key, usd in self._held_by_scope.items() if key != scope), Decimal(0))
        usd = self._consolidation_usd()
        if self.spent() + self._held_for_windows + others + usd > self.limit:
            self._refused.add(scope)
            return False
        self._refused.discard(scope)
        self._held_by_scope[scope] = usd
        return True

    def counted(self, call: ModelCalled) -> None:
        """A call stands in `spent`: nothing is held for it any more."""
        if call.stage == CONSOLIDATION and call.scope is not None:
            self._held_by_scope.pop(call.scope, None)
            self._consolidation_costs.append(call.cost_usd or Decimal(0))

    def is_stuck(self, fed: Iterable[PlannedWindow]) -> bool:
        """Return whether a consolidation waits for room, and nothing is on its way that could leave any."""
        if self.limit is None or not self._refused or self._held_by_scope or any(True for _ in fed):
            return False
        return self.spent() + self._consolidation_usd() > self.limit

    def _consolidation_usd(self) -> Decimal:
        expected, costs = self.consolidation_usd, self._consolidation_costs
        if len(costs) < ENOUGH:
            return expected
        return max(expected, sum(costs, Decimal(0)) / len(costs))


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
    """Waited for between two windows where only one is on its way at a time."""
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
        if self.at_once == 1 and not await self.quiet():
            return False
        while True:
            self._take_new()
            capped = await self._feed()
            if not self._fed:
                if capped:
                    return False
                if not self._waiting and not self._new:
                    return True
                continue
            if not await self._look():
                return False

    async def quiet(self) -> bool:
        """Until nothing that follows from windows is left to do; False: what is left waits for a higher cap."""
        quiet = asyncio.ensure_future(self.settled())
        try:
            while not quiet.done():
                if self.cap.is_stuck(self._fed.values()):
                    return False
                await asyncio.wait([quiet], timeout=LOOK_SECONDS)
            quiet.result()
            return True
        finally:
            await end([quiet])

    def _take_new(self) -> None:
        self._waiting.extend(in_order(self._new))
        self._new = []

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
        if some:
            self.cap.hold_for_windows(self._fed.values())
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

    async def _look(self) -> bool:
        """Find out which of those fed are complete, after a while; False: at the cap."""
        done = await self._complete(list(self._fed))
        for name in done:
            self._formed(self._fed.pop(name))
        self.cap.hold_for_windows(self._fed.values())
        if done and self.at_once == 1:
            return await self.quiet()
        if not done:
            await asyncio.sleep(LOOK_SECONDS)
        return True

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
