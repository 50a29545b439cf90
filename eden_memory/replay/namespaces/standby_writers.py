"""Runs what has to run for namespaces that are not live, as they come and go: each by itself, none holds up live."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass

import structlog

from eden_memory.error_text import describe
from eden_memory.stages.process import ProcessPart, State, Together
from eden_memory.task_ending import end, first_of

log = structlog.get_logger("eden.shadows")

Made = Callable[[], AbstractAsyncContextManager[Sequence[ProcessPart]]]
LOOK_SECONDS = 1.0
AGAIN_SECONDS = 10.0
"""What could not go on is begun again after so long."""


@dataclass(slots=True)
class _Running:
    task: asyncio.Task[None]
    stopping: asyncio.Event


class Shadows:
    """`wanted` tells by name what is to run now; it is asked every second."""

    name = "shadows"

    def __init__(self, wanted: Callable[[], Awaitable[Mapping[str, Made]]], drain_seconds: float) -> None:
        self._wanted, self._drain_seconds = wanted, drain_seconds
        self._running: dict[str, _Running] = {}
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Until `stop`."""
        looking = asyncio.create_task(self._look())
        try:
            await self._stopping.wait()
            await asyncio.wait(
                [looking], timeout=self._drain_seconds
            )  # a look that is cancelled leaves connections
        finally:
            await end([looking])
            await self._end(list(self._running))

    def stop(self) -> None:
        """End `run`."""
        self._stopping.set()

    def state(self) -> State:
        """Never in the way of readiness: live memory does not wait for any of them."""
        return State(True, ", ".join(sorted(self._running)) or "nothing beside live")

    async def _look(self) -> None:
        while not self._stopping.is_set():
            try:
                wanted = await self._wanted()
            except Exception as error:  # noqa: BLE001 - the edge of a task of its own: it looks again
                log.warning("it is not known what is beside live", reason=describe(error))
            else:
                await self._end([name for name in self._running if name not in wanted])
                for name in wanted.keys() - self._running.keys():
                    self._begin(name, wanted[name])
            await _unless(self._stopping, LOOK_SECONDS)

    def _begin(self, name: str, made: Made) -> None:
        stopping = asyncio.Event()
        self._running[name] = _Running(asyncio.create_task(self._keep(name, made, stopping)), stopping)

    async def _keep(self, name: str, made: Made, stopping: asyncio.Event) -> None:
        """Until told to stop, whatever goes wrong."""
        while not stopping.is_set():
            try:
                async with made() as parts:
                    await self._until(stopping, Together(parts, self._drain_seconds))
            except Exception as error:  # noqa: BLE001 - the edge of a task of its own: it is begun again
                log.error("cannot go on, is begun again", beside=name, reason=describe(error))
                await _unless(stopping, AGAIN_SECONDS)

    async def _until(self, stopping: asyncio.Event, together: Together) -> None:
        running = asyncio.create_task(together.run())
        try:
            await first_of(running, stopping)
            together.stop()
            await running
        finally:
            await end([running])

    async def _end(self, names: Sequence[str]) -> None:
        ended = [self._running.pop(name) for name in names]
        for one in ended:
            one.stopping.set()
        if ended:
            await asyncio.wait([one.task for one in ended], timeout=self._drain_seconds)
            await end([one.task for one in ended])


async def _unless(stopping: asyncio.Event, seconds: float) -> None:
    """Wait, but no longer than until it is set."""
    with suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), seconds)
