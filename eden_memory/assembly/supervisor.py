"""Runs the parts of the live namespace; when another one becomes live, its parts take over."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, suppress

from eden_memory.logs import LibraryLogger
from eden_memory.names import Placement
from eden_memory.stages.patience import until_done
from eden_memory.stages.process import ProcessPart, State, Together
from eden_memory.tasks import end, first_of

log = LibraryLogger("eden.live")

Made = Callable[[Placement], AbstractAsyncContextManager[Sequence[ProcessPart]]]


class MadeAnew(Exception):  # noqa: N818 - no error: what a part raises when others are to run from now on
    """All parts have to be made again, for the same placement."""


class LiveParts:
    """A part of a process that has parts itself: those that `made` makes, ready to run, for a placement.

    `changes` tells what is live, and each time that something else is. The former parts have ended, and what they
    stood on is closed, before the new ones are made. They are made anew, too, when a part raises MadeAnew.
    """

    name = "live"

    def __init__(
        self, made: Made, changes: Callable[[], AsyncGenerator[Placement]], drain_seconds: float
    ) -> None:
        self._made, self._changes, self._drain_seconds = made, changes, drain_seconds
        self._stack = AsyncExitStack()
        self._stopping, self._moved = asyncio.Event(), asyncio.Event()
        self._now = self._wanted = Placement()
        self.parts: tuple[ProcessPart, ...] = ()

    async def begin(self, placement: Placement) -> None:
        """Make the parts of a placement; errors are raised."""
        parts = await self._stack.enter_async_context(self._made(placement))
        self.parts, self._now = tuple(parts), placement

    async def close(self) -> None:
        """Close the connections of the parts."""
        stack, self._stack = self._stack, AsyncExitStack()
        self.parts = ()
        await stack.aclose()

    async def run(self) -> None:
        """Run until `stop`; raise what one of the parts raises."""
        self._wanted = self._now
        following = asyncio.create_task(self._follow())
        try:
            while not self._stopping.is_set():
                await self._until_moved(following)
        finally:
            await end([following])
            await self.close()

    def stop(self) -> None:
        """Drain the parts and end `run`."""
        self._stopping.set()

    def state(self) -> State:
        """Ready while the parts of the live namespace run."""
        moving = self._wanted != self._now or not self.parts
        return State(not moving, f"moving to {self._wanted.memory}" if moving else self._now.memory)

    async def _until_moved(self, following: asyncio.Task[None]) -> None:
        """The parts of one placement, from begin to end, and those of the next made."""
        together = Together(self.parts, self._drain_seconds)
        running = asyncio.create_task(together.run())
        try:
            await first_of(running, following, self._moved, self._stopping)
            together.stop()
            with suppress(MadeAnew):
                await running
        finally:
            await end([running])
        await self.close()
        if following.done():
            following.result()
        if self._stopping.is_set():
            return
        self._moved.clear()
        if self._wanted != self._now:
            log.info("another namespace is live", was=self._now.memory, now=self._wanted.memory)
        making = asyncio.create_task(until_done(lambda: self.begin(self._wanted)))
        try:
            await first_of(making, self._stopping)
            await asyncio.wait([making], timeout=self._drain_seconds)
        finally:
            await end([making])
        if not making.cancelled():
            making.result()

    async def _follow(self) -> None:
        async with aclosing(self._changes()) as changes:
            async for placement in changes:
                self._wanted = placement
                if placement != self._now:
                    self._moved.set()
