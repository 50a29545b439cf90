"""A reform holds back while live formation has work: it looks twice a second whether there is any, and goes on after.

It never stands still: beside live it goes on with a smaller share of windows and handlers. Live formation that has
work and does none of it (stopped, paused, its provider away) is not waited for.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from eden_memory.error_text import describe
from eden_memory.stages.slots import Slots

log = structlog.get_logger()
LOOK_SECONDS = 0.5
AGAIN_SECONDS = 5.0
STILL_SECONDS = 30.0
"""Live formation that has not got on for so long does not."""
HANDLERS = 2
"""Of a reform, at the same time, while live formation works: one window has two ways behind its facts."""


@dataclass(slots=True)
class Throttling:
    """`live`: how many offsets live's groups have not passed yet, and how many they have.

    `whole` and `beside`: windows of the reform on their way, alone and beside live.
    """

    live: Callable[[], Awaitable[tuple[int, int]]]
    slots: Slots
    whole: int
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
        return min(self.whole, self.beside) if self.holds else self.whole

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
