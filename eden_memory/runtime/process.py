"""One process: its parts run side by side, a first SIGTERM drains them, a second one ends at once.

Nothing is lost by the second either: what counts is committed before it is acknowledged.
"""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import structlog

log = structlog.get_logger("eden.process")
T = TypeVar("T")

DRAIN_SECONDS = 30.0
CANCEL_SECONDS = 5.0
"""What was cancelled because it did not stop in time has so long to end."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class State:
    """Whether a part does its work now, and if not (or not fully) why."""

    ready: bool
    what: str


class Part(Protocol):
    """Something that runs until it is told to stop."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    async def run(self) -> None:
        """Until `stop`; raises when it cannot go on."""
        ...

    def stop(self) -> None:
        """Finish what is under way, then end `run`."""
        ...

    def state(self) -> State:
        """For `/readyz` and `eden status`."""
        ...


class Process:
    """Runs parts until a signal, or until one of them cannot go on."""

    def __init__(
        self,
        parts: Sequence[Part],
        drain_seconds: float = DRAIN_SECONDS,
        *,
        cancel_seconds: float = CANCEL_SECONDS,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self.parts, self._drain_seconds = parts, drain_seconds
        self._cancel_seconds, self._end = cancel_seconds, end
        self._asked_to_stop = asyncio.Event()

    async def run(self) -> None:
        """All parts; what one of them raises is raised here, after the others were drained."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._signalled, number)
        tasks = [asyncio.create_task(part.run(), name=part.name) for part in self.parts]
        asked = asyncio.create_task(self._asked_to_stop.wait())
        try:
            await asyncio.wait([*tasks, asked], return_when=asyncio.FIRST_COMPLETED)
            await self._drain(tasks)
        finally:
            asked.cancel()
            for number in SIGNALS:
                loop.remove_signal_handler(number)
        for task in tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def _drain(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        for part in self.parts:
            part.stop()
        _, late = await asyncio.wait(tasks, timeout=self._drain_seconds)
        for task in late:
            log.warning("did not stop in time", part=task.get_name(), seconds=self._drain_seconds)
            task.cancel()
        stuck = (await asyncio.wait(late, timeout=self._cancel_seconds))[1] if late else ()
        if stuck:  # the event loop would wait for them without end
            log.error("ends without what does not stop", parts=sorted(task.get_name() for task in stuck))
            self._end(1)

    def _signalled(self, number: int) -> None:
        if self._asked_to_stop.is_set():
            log.warning("ends at once", signal=signal.Signals(number).name)
            os._exit(0)
        log.info("stops", signal=signal.Signals(number).name)
        self._asked_to_stop.set()


@contextmanager
def ended_by_signals() -> Generator[None]:
    """While a process starts, a signal ends it at once: nothing is under way yet."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, os._exit, 0)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


def run(main: Coroutine[Any, Any, T], collected_after: int = 200_000) -> T:
    """Run a process on the fastest event loop there is, with the collector tuned for many short-lived objects.

    Batches of thousands of decoded documents made the default collector spend half of the tailer's time on
    looking at objects that reference counting frees anyway. `collected_after`: so many that are not freed.
    """
    gc.freeze()
    gc.set_threshold(collected_after, 20, 50)
    if sys.platform == "win32":
        return asyncio.run(main)
    import uvloop  # noqa: PLC0415 - not there on Windows

    return uvloop.run(main)
