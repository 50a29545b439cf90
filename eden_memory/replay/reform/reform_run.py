"""A reform at work: its stages run in this process, windows are fed to them, and it yields to live formation."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal

from eden_memory.assembly.handlers import Account
from eden_memory.directory.directory_store import MongoAudiences
from eden_memory.errors import EdenError, describe
from eden_memory.logs import LibraryLogger
from eden_memory.names import Names
from eden_memory.replay.group_progress import GroupProgress
from eden_memory.replay.installation import Database
from eden_memory.replay.reform.feeding import CountedReuse, Feeding, InterceptingPublisher
from eden_memory.replay.reform.reform_settings import formed_by
from eden_memory.replay.reform.reform_store import MongoReforms, requested_windows
from eden_memory.replay.user_edits.reapplying import reapply
from eden_memory.replay.user_edits.user_edits import AppliedEdits
from eden_memory.schemas.documents import Reform
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from eden_memory.stages.lanes import Slots
from eden_memory.stages.patience import until_done
from eden_memory.stages.process import ProcessPart, Together
from eden_memory.tasks import end, first_of

log = LibraryLogger()
LOOK_SECONDS = 0.5
AGAIN_SECONDS = 5.0
STILL_SECONDS = 30.0
"""Seconds without progress after which live formation counts as standing still."""
HANDLERS = 2
"""Of a reform, at the same time, while live formation works: one window has two ways behind its facts."""
TICK_SECONDS = 0.5
LEAVE_SECONDS = 20.0
LAST_SECONDS = 5.0


@dataclass(slots=True)
class Throttling:
    """`live`: how many offsets live's groups have not passed yet, and how many they have.

    `at_once` and `beside`: windows of the reform on their way, alone and beside live.
    """

    live: Callable[[], Awaitable[tuple[int, int]]]
    slots: Slots
    at_once: int
    beside: int
    clock: Callable[[], float] = lambda: asyncio.get_running_loop().time()
    holds: bool = False
    """Whether live formation is given way to now."""
    _passed: int | None = None
    _moved: float = 0.0
    _handlers: int = field(init=False)

    def __post_init__(self) -> None:
        """Handlers as there are alone."""
        self._handlers = self.slots.limit

    @property
    def windows(self) -> int:
        """So many may be on their way now."""
        return min(self.at_once, self.beside) if self.holds else self.at_once

    async def run(self) -> None:
        """Look, again and again, until cancelled."""
        while True:
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001 - the edge of a task of its own: who cannot see does not wait
                log.warning("live formation is not seen", reason=describe(error))
                self._hold(False)
                await asyncio.sleep(AGAIN_SECONDS)
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Find out whether live formation works, and make room for it."""
        behind, passed = await self.live()
        if passed != self._passed:
            self._passed, self._moved = passed, self.clock()
        self._hold(behind > 0 and self.clock() < self._moved + STILL_SECONDS)

    def _hold(self, holds: bool) -> None:
        self.holds = holds
        self.slots.resize(min(self._handlers, HANDLERS) if holds else self._handlers)


@dataclass(frozen=True, slots=True)
class ReformProgress:
    """How far a reform is, in windows; US dollars."""

    formed: int
    total: int
    spent: Decimal
    paid: int
    """Calls."""
    reused: int
    """Answers."""
    waits_for: str = ""
    """Why it does not go on, or not faster; empty: it does."""


@dataclass(slots=True)
class ReformRun:
    """Everything that a reform runs; `trigger` cuts windows, `stages` form them."""

    reform: Reform
    settings: Settings
    """The reform's own."""
    source: Names
    """The collections of the memory that it began from."""
    database: Database
    feeding: Feeding
    publisher: InterceptingPublisher
    answers: Sequence[CountedReuse]
    throttling: Throttling
    trigger: ProcessPart
    stages: Sequence[ProcessPart]
    cut: GroupProgress
    """Of the trigger's group."""
    forgotten: GroupProgress
    """Of forgetting's group: its marks are the reform's own, and are there before anything is formed."""
    times: Mapping[str, datetime]
    """When live formation asked for each window."""
    on_progress: Callable[[ReformProgress], None]
    user_edits: AppliedEdits = field(default_factory=AppliedEdits)
    """The reapplied edits, once everything is formed."""
    edits_read_at: datetime | None = None
    """When reading them began: later edits are in the former memory alone."""
    forms: Callable[[Scope], bool] = lambda _: True
    """Whether the reform forms a scope; known once edits are reapplied."""
    _noted: int = 0
    """Reused answers that are stored already."""
    _cutting: asyncio.Task[None] | None = None
    _all_cut: bool = False
    """Whether the trigger was stopped because there is nothing left to cut."""

    async def run(self) -> bool:
        """Form everything that is in `chat.messages`; False: it paused at the cap. The stages end in any case."""
        together = Together(self.stages, LEAVE_SECONDS)
        self._cutting = cutting = asyncio.create_task(self.trigger.run(), name=self.trigger.name)
        forming = asyncio.create_task(together.run(), name="a stage")
        ticking = asyncio.create_task(self._tick())
        steps = asyncio.create_task(self._steps())
        try:
            await self._until_ended(steps, (forming, ticking))
            return steps.result()
        finally:
            await end([steps, ticking])
            together.stop()
            self.trigger.stop()
            _, late = await asyncio.wait([forming, cutting], timeout=LEAVE_SECONDS)
            await end(late)
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_SECONDS):
                    await until_done(self._note)

    async def _until_ended(self, steps: asyncio.Task[bool], jobs: Sequence[asyncio.Task[None]]) -> None:
        """Wait for the steps; raise what a job raises, and EdenError for one that ends by itself."""
        assert self._cutting is not None
        while not steps.done():
            watched = jobs if self._all_cut else (*jobs, self._cutting)
            await first_of(steps, *watched)
            for job in (*jobs, self._cutting):
                if job.done():
                    job.result()
                    if not steps.done() and not (self._all_cut and job is self._cutting):
                        raise EdenError(
                            f"{job.get_name()} has stopped by itself", "Run the same command again."
                        )

    async def _steps(self) -> bool:
        requested = requested_windows(self.database, self.settings.names)
        await self.feeding.know(requested, self.times)
        await self.forgotten.until_passed()
        for _ in range(2):
            await self.cut.until_passed()
            if not await self.feeding.run():
                return False
        await self._stop_cutting()
        if not await self.feeding.run():
            return False
        await self.feeding.settled()
        if await self._reapply():
            await self.feeding.settled()
        return True

    async def _stop_cutting(self) -> None:
        """Leave the chat that follows to whoever reads in the trigger's group next."""
        assert self._cutting is not None
        self._all_cut = True
        self.trigger.stop()
        await self._cutting

    async def _reapply(self) -> bool:
        """Reapply what people added, edited and retired; return whether that gave the stages more to do."""
        audiences = MongoAudiences(self.database, self.source)
        heard = await audiences.heard_by(self.reform.asked.user_id)
        self.edits_read_at, self.forms = datetime.now(UTC), formed_by(self.reform.asked, heard)
        self.user_edits = await reapply(
            self.database,
            self.source,
            self.settings,
            self.publisher,
            account=Account(self.reform.id),
            wanted=self.forms,
        )
        additions = self.user_edits.additions
        return bool(self.user_edits.of("applied") or additions.applied or additions.marked)

    def _waits_for(self) -> str:
        states = ((part.name, part.state()) for part in (self.trigger, *self.stages))
        paused = "; ".join(
            f"{name} {state.what}" for name, state in states if state.what.startswith("paused")
        )
        return paused or ("live formation goes first" if self.throttling.holds else "")

    async def _tick(self) -> None:
        while True:
            await until_done(self._note)
            await asyncio.sleep(TICK_SECONDS)

    async def _note(self) -> None:
        """Report and store the progress."""
        feeding, publisher = self.feeding, self.publisher
        formed, spent, paid = feeding.cap.formed, publisher.spent, publisher.paid
        reused = sum(answers.reused for answers in self.answers)
        self.on_progress(
            ReformProgress(
                formed, feeding.known_windows, spent, paid, self.reform.reused + reused, self._waits_for()
            )
        )
        reforms = MongoReforms(self.database, self.settings.mongodb.prefix)
        await reforms.note(
            self.reform.id,
            formed=formed,
            windows=max(feeding.known_windows, formed),
            spent_usd=spent,
            paid=paid,
        )
        await reforms.reused(self.reform.id, reused - self._noted)
        self._noted = reused
