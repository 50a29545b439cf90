"""A reform at work: its stages run in this process, windows are fed to them, until all there is is formed."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from eden_memory.errors import EdenError
from eden_memory.replay.group_progress import GroupProgress
from eden_memory.replay.reform.feeding import Feeding
from eden_memory.stages.patience import until_done
from eden_memory.stages.process import Part
from eden_memory.task_ending import end

TICK_SECONDS = 0.5
LEAVE_SECONDS = 20.0
LAST_SECONDS = 5.0


@dataclass(slots=True)
class Reforming:
    """`trigger` cuts windows, `stages` form them; `tick` is called twice a second."""

    feeding: Feeding
    trigger: Part
    stages: Sequence[Part]
    cut: GroupProgress
    """Of the trigger's group."""
    forgotten: GroupProgress
    """Of forgetting's group: its marks are the reform's own, and stand before anything is formed."""
    know: Callable[[], Awaitable[None]]
    """Tells `feeding` of all windows there are."""
    finish: Callable[[], Awaitable[bool]]
    """Called once everything is formed; whether that gave the stages more to do."""
    tick: Callable[[], Awaitable[None]]
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict[str, asyncio.Task[None]])

    async def run(self) -> bool:
        """Until all that is in `chat.messages` is formed; False: at the cap. In any case the stages are ended."""
        parts = [self.trigger, *self.stages]
        self._tasks = {one.name: asyncio.create_task(one.run(), name=one.name) for one in parts}
        steps, ticking = asyncio.create_task(self._steps()), asyncio.create_task(self._tick())
        try:
            await self._first(steps, ticking)
            return steps.result()
        finally:
            await end([steps, ticking])
            for one in parts:
                one.stop()
            _, late = await asyncio.wait(self._tasks.values(), timeout=LEAVE_SECONDS)
            await end(late)
            await self._last_tick()

    async def _first(self, steps: asyncio.Task[bool], ticking: asyncio.Task[None]) -> None:
        """Wait for the steps; what a part raises is raised, and none may end before."""
        while not steps.done():
            working = {one for name, one in self._tasks.items() if name != self.trigger.name}
            await asyncio.wait({steps, ticking, *working}, return_when=asyncio.FIRST_COMPLETED)
            for task in (ticking, *working):
                if task.done():
                    task.result()
                    if not steps.done():
                        raise EdenError(
                            f"{task.get_name()} has stopped by itself", "Run the same command again."
                        )
            trigger = self._tasks[self.trigger.name]
            if trigger.done():
                trigger.result()

    async def _steps(self) -> bool:
        await self.know()
        await self.forgotten.until_passed()
        await self.cut.until_passed()
        if not await self.feeding.run():
            return False
        await self.cut.until_passed()
        if not await self.feeding.run():
            return False
        await self._stop_cutting()
        if not await self.feeding.run():
            return False
        if not await self.feeding.quiet():
            return False
        return not await self.finish() or await self.feeding.quiet()

    async def _stop_cutting(self) -> None:
        """From here on chat waits for whoever reads in the trigger's group next."""
        self.trigger.stop()
        await asyncio.wait([self._tasks[self.trigger.name]])
        self._tasks[self.trigger.name].result()

    def held(self) -> str:
        """What keeps stages from working now, for people; empty where nothing does."""
        states = ((one.name, one.state()) for one in (self.trigger, *self.stages))
        return "; ".join(f"{name} {state.what}" for name, state in states if state.what.startswith("paused"))

    async def _tick(self) -> None:
        while True:
            await until_done(self.tick)
            await asyncio.sleep(TICK_SECONDS)

    async def _last_tick(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                await until_done(self.tick)
