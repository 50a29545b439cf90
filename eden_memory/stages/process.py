"""One process: its parts run side by side, a first SIGTERM drains them, a second one ends at once.

Nothing is lost by the second either: what counts is committed before it is acknowledged.
"""

import asyncio
import faulthandler
import gc
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol, TypeVar

from eden_memory.errors import EdenError
from eden_memory.logs import LibraryLogger
from eden_memory.tasks import end, first_of, heeding

log = LibraryLogger("eden.process")
T = TypeVar("T")

DRAIN_SECONDS = 30.0
CANCEL_SECONDS = 5.0
"""Seconds for a cancelled part to end, after it did not stop in time."""
CLOSE_SECONDS = 10.0
"""Seconds for closing the connections and files of the parts."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class State:
    """Whether a part does its work now, and if not (or not fully) why."""

    ready: bool
    what: str


class ProcessPart(Protocol):
    """Something that runs until it is told to stop."""

    @property
    def name(self) -> str:
        """Its name for people."""
        ...

    async def run(self) -> None:
        """Run until `stop`; raise an error if it cannot continue."""
        ...

    def stop(self) -> None:
        """Finish the work in progress, then end `run`."""
        ...

    def state(self) -> State:
        """For `/readyz` and `eden status`."""
        ...


class Signals:
    """SIGTERM and SIGINT: while a process starts the first ends it at once, later it drains it, a second one ends it.

    The handlers stay until the event loop is closed: a signal that is on its way to the loop while its handler is
    taken away would be lost. A thread ends the process where its loop, or a library, does not let it.
    """

    def __init__(self, end: Callable[[int], object] = os._exit) -> None:
        self.asked = asyncio.Event()
        self.end = end
        self._loop: asyncio.AbstractEventLoop | None = None
        self._working = False
        self._latest: threading.Timer | None = None

    def listen(self) -> None:
        """From now on, in the running loop."""
        self._loop = asyncio.get_running_loop()
        for number in SIGNALS:
            self._loop.add_signal_handler(number, self._signalled, number)

    def working(self) -> None:
        """Record that the process has started: from now on a signal drains it."""
        self._working = True

    def ends_within(self, seconds: float) -> None:
        """End the process by force after so many seconds, unless it ends or `over` is called before."""
        self._latest = threading.Timer(seconds, self._too_late, [seconds])
        self._latest.daemon = True
        self._latest.start()

    def over(self) -> None:
        """Record that everything is closed."""
        if self._latest is not None:
            self._latest.cancel()

    def _signalled(self, number: int) -> None:
        if self._working and not self.asked.is_set():
            log.info("stops", signal=signal.Signals(number).name)
            self.asked.set()
            return
        log.warning("ends at once", signal=signal.Signals(number).name)
        self.end(0)

    def _too_late(self, seconds: float) -> None:
        log.error("ends without what does not close", seconds=seconds)
        if self._loop is not None:
            say_where_tasks_stand(self._loop)
        self.end(1)


def say_where_tasks_stand(loop: asyncio.AbstractEventLoop) -> None:
    """Print the stack of each task down to what it waits for, and of each thread, to standard error."""
    for task in asyncio.all_tasks(loop):
        sys.stderr.write(f"task {task.get_name()}\n")
        for frame in _waiting(task.get_coro()):
            sys.stderr.write("".join(traceback.format_stack(frame, 1)))
    sys.stderr.flush()
    faulthandler.dump_traceback()


def _waiting(coroutine: Any) -> Iterator[FrameType]:
    """Yield the frames of a coroutine and of those that it awaits; a task knows only the outermost one."""
    while coroutine is not None:
        kind = next((kind for kind in ("cr", "gi", "ag") if hasattr(coroutine, f"{kind}_frame")), None)
        if kind is None:
            return
        if (frame := getattr(coroutine, f"{kind}_frame")) is not None:
            yield frame
        coroutine = getattr(coroutine, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")


class Process:
    """Runs parts until a signal, or until one of them cannot continue."""

    def __init__(
        self,
        parts: Sequence[ProcessPart],
        signals: Signals,
        drain_seconds: float = DRAIN_SECONDS,
        *,
        cancel_seconds: float = CANCEL_SECONDS,
    ) -> None:
        self.parts, self._signals, self._drain_seconds = parts, signals, drain_seconds
        self._cancel_seconds = cancel_seconds

    async def run(self) -> None:
        """Run all parts; if one fails, drain the others and then raise its error."""
        self._signals.working()
        tasks = _started(self.parts)
        log.info("process runs", parts=[part.name for part in self.parts])
        await first_of(*tasks, self._signals.asked)
        asyncio.get_running_loop().set_exception_handler(_while_ending)
        self._signals.ends_within(self._drain_seconds + self._cancel_seconds + CLOSE_SECONDS)
        by_itself = None if self._signals.asked.is_set() else _ended(tasks)
        await self._drain(tasks)
        _raise_first(tasks, by_itself)

    async def _drain(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        late = await _drained(self.parts, tasks, self._drain_seconds)
        for task in late:
            log.warning("did not stop in time", part=task.get_name(), seconds=self._drain_seconds)
            task.cancel()
        stuck = (await asyncio.wait(late, timeout=self._cancel_seconds))[1] if late else ()
        if stuck:  # the event loop would wait for them without a limit
            log.error("ends without what does not stop", parts=sorted(task.get_name() for task in stuck))
            self._signals.end(1)


def _started(parts: Sequence[ProcessPart]) -> list[asyncio.Task[None]]:
    return [asyncio.create_task(part.run(), name=part.name) for part in parts]


async def _drained(
    parts: Sequence[ProcessPart], tasks: Sequence[asyncio.Task[None]], seconds: float
) -> set[asyncio.Task[None]]:
    """Stop all parts and wait for them; return the tasks that have not ended in time."""
    for part in parts:
        part.stop()
    return (await asyncio.wait(tasks, timeout=seconds))[1] if tasks else set()


def _ended(tasks: Sequence[asyncio.Task[None]]) -> str | None:
    return next((task.get_name() for task in tasks if task.done()), None)


def _raise_first(tasks: Sequence[asyncio.Task[None]], by_itself: str | None) -> None:
    """Raise the first error of a part; an EdenError if one has ended although nobody stopped it."""
    for task in tasks:
        if task.done() and not task.cancelled():
            task.result()
    if by_itself is not None:
        raise EdenError(f"{by_itself} has ended by itself", "Start it again; its log may say why.")


def _while_ending(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Ignore connections that aiokafka was opening when it was cancelled: they close with the process."""
    if not str(context.get("message", "")).startswith("Unclosed AIOKafka"):
        loop.default_exception_handler(context)


def run_until_signal(main: Callable[[Signals], Coroutine[Any, Any, None]]) -> None:
    """Run a process until it is told to end; it handles signals from its first step on."""
    signals = Signals()

    async def listening() -> None:
        signals.listen()
        await main(signals)

    try:
        run(listening())
    finally:
        signals.over()
    log.info("stopped")


def run(main: Coroutine[Any, Any, T], collected_after: int = 200_000) -> T:
    """Run a process on the fastest event loop there is, with the collector tuned for many short-lived objects.

    Batches of thousands of decoded documents made the default collector spend half of the tailer's time on
    looking at objects that reference counting frees anyway. `collected_after`: so many that are not freed.
    """
    gc.freeze()
    gc.set_threshold(collected_after, 20, 50)
    if sys.platform == "win32":
        return asyncio.run(heeding(main))
    import uvloop  # noqa: PLC0415 - not there on Windows

    return uvloop.run(heeding(main))


class Together:
    """Runs parts side by side, while the process goes on, until `stop` or until one of them fails.

    A part that has not ended in time is cancelled.
    """

    def __init__(self, parts: Sequence[ProcessPart], drain_seconds: float) -> None:
        self.parts, self._seconds = tuple(parts), drain_seconds
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Run all parts; if one fails, drain the others and then raise its error."""
        tasks = _started(self.parts)
        try:
            await first_of(*tasks, self._stopping)
            by_itself = None if self._stopping.is_set() else _ended(tasks)
            await _drained(self.parts, tasks, self._seconds)
        finally:
            await end(tasks)
        _raise_first(tasks, by_itself)

    def stop(self) -> None:
        """End `run`."""
        self._stopping.set()
