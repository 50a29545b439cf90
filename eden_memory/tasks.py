"""Tasks, timers and facts of this process.

Work that wakes a process costs several times as much as the same work beside other work: caches are cold by then.
"""

import asyncio
import os
import random
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Coroutine, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import cache
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from eden_memory.errors import Invalid

T = TypeVar("T")
AGAIN_SECONDS = 1.0
HEEDED_SECONDS = 5.0
"""Seconds that an interrupted command has to end in order before it is told again."""


async def end(jobs: Iterable[asyncio.Future[Any]], again_seconds: float = AGAIN_SECONDS) -> None:
    """Cancel the jobs, again where they go on, until all have ended; what they raise is left to be asked for.

    PyMongo 4.20 goes on reading a change stream when the cancellation meets the answer that it waits for: one
    stop in a hundred of a stage that had just started then never ended.
    """
    everyone = list(jobs)
    left = {job for job in everyone if not job.done()}
    while left:
        for job in left:
            job.cancel()
        _, left = await asyncio.wait(left, timeout=again_seconds)
    await asyncio.gather(*everyone, return_exceptions=True)


async def one_ahead(found: AsyncIterable[T]) -> AsyncGenerator[T]:
    """Yield items, and request the next one while the caller works."""
    batches = aiter(found)
    asked = asyncio.ensure_future(anext(batches, None))
    try:
        while (batch := await asked) is not None:
            asked = asyncio.ensure_future(anext(batches, None))
            yield batch
    finally:
        await end([asked])


async def in_thread(work: Callable[[], T]) -> T:
    """Run blocking work in a thread; whoever is cancelled meanwhile leaves when the thread has ended.

    A thread cannot be cancelled: a lock that guards what it reads is not released before.
    """
    thread = asyncio.ensure_future(asyncio.to_thread(work))
    cancelled: asyncio.CancelledError | None = None
    while not thread.done():
        try:
            await asyncio.wait([thread])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return thread.result()


async def off_the_loop(work: Callable[[], T]) -> T:
    """Run computing of more than 5 ms in a thread, so that the event loop answers others meanwhile.

    A process has one such thread: several would pass Python's lock among them while the event loop waits for it.
    """
    return await asyncio.get_running_loop().run_in_executor(_computing(), work)


@cache
def _computing() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "computing")


async def first_of(*jobs: "asyncio.Future[Any] | asyncio.Event", seconds: float | None = None) -> None:
    """Wait until one of the futures is done, one of the events is set, or time is up; the futures go on."""
    waited = [asyncio.ensure_future(job.wait()) if isinstance(job, asyncio.Event) else job for job in jobs]
    try:
        await asyncio.wait(waited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end([wait for wait, job in zip(waited, jobs, strict=True) if wait is not job])


async def run_until_first(*work: Awaitable[Any] | asyncio.Event) -> None:
    """Run work side by side until the first ends, or an event is set; end the rest, raise what the first raised."""
    jobs = [asyncio.ensure_future(job.wait() if isinstance(job, asyncio.Event) else job) for job in work]
    ended: list[asyncio.Future[Any]] = []
    try:
        await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended = [job for job in jobs if job.done()]
        await end(jobs)
    for job in ended:
        job.result()


class Unawaited:
    """Tasks that a part starts and does not wait for: the part waits for `failed`, and `check` raises why.

    Without it such a task dies unseen: nobody asks for its error while the part runs.
    """

    def __init__(self) -> None:
        self.failed = asyncio.Event()
        """Set once one of the tasks has ended with an error."""
        self._error: BaseException | None = None

    def add(self, task: asyncio.Task[T]) -> asyncio.Task[T]:
        """Return a task whose error counts from now on."""
        task.add_done_callback(self._ended)
        return task

    def check(self) -> None:
        """Raise the first error of a task, if there was one."""
        if self._error is not None:
            raise self._error

    def _ended(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and self._error is None:
            self._error = error
            self.failed.set()


async def all_of(*work: Awaitable[T]) -> list[T]:
    """Run work side by side and return what came out, in order; once some fails, end the rest and raise its error."""
    jobs = [asyncio.ensure_future(job) for job in work]
    try:
        if jobs:
            await asyncio.wait(jobs, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        await end(jobs)
    for job in sorted(jobs, key=lambda job: job.cancelled()):
        job.result()
    return [job.result() for job in jobs]


async def heeding(main: Coroutine[Any, Any, T], again_seconds: float = HEEDED_SECONDS) -> T:
    """A command's work, which Ctrl-C ends also where the first one gets lost.

    `eden rebuild` that was interrupted while MongoDB's answer to its first write arrived went on to its end.
    """
    work = asyncio.ensure_future(main)
    try:
        await asyncio.wait([work])
    except asyncio.CancelledError:
        await end([work], again_seconds)
        if work.cancelled():
            raise
    return work.result()


class Deadline:
    """As `asyncio.timeout`, but who goes on when the time is up is cancelled again, until the block has ended.

    A handler whose time was up in the moment an answer of MongoDB arrived lost the cancellation there, and went
    on for as long as it liked: its lane stood still, and with it, in the end, its partition.
    """

    def __init__(self, seconds: float | None, again_seconds: float = AGAIN_SECONDS) -> None:
        self._seconds, self._again = seconds, again_seconds
        self._task: asyncio.Task[Any] | None = None
        self._before = self._fired = 0
        self._timer: asyncio.TimerHandle | None = None
        self._left: float | None = None
        self._stopped = 0

    @contextmanager
    def stopped(self) -> Generator[None]:
        """The clock stands still inside; several blocks may overlap."""
        self._stopped += 1
        if self._stopped == 1 and self._timer is not None and not self._fired:
            self._left = max(0.0, self._timer.when() - asyncio.get_running_loop().time())
            self._stop()
        try:
            yield
        finally:
            self._stopped -= 1
            if self._stopped == 0 and self._left is not None and self._task is not None:
                loop = asyncio.get_running_loop()
                self._timer, self._left = loop.call_later(self._left, self._fire, self._task), None

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def __aenter__(self) -> "Deadline":
        self._task = asyncio.current_task()
        assert self._task is not None
        self._before = self._task.cancelling()
        if self._seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._fire, self._task)
        return self

    def _fire(self, task: asyncio.Task[Any]) -> None:
        task.cancel()
        self._fired += 1
        self._timer = asyncio.get_running_loop().call_later(self._again, self._fire, task)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._stop()
        self._left = None
        for _ in range(self._fired):
            self._task.uncancel()
        ours = self._fired and self._task.cancelling() <= self._before
        if ours and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise TimeoutError from error


PHASE = random.uniform(0.0, 60.0)  # noqa: S311 - nothing secret
"""Seconds by which the ticks of this process differ from those of others on its machine."""
LEAST = 0.5
"""The first wait of a timer takes at least this share of its period."""


def until_tick(seconds: float) -> float:
    """Return the seconds until the next tick of timers with this period: half of it to one and a half times.

    All timers of a process count from one moment, so periods that are multiples of each other meet.
    """
    left = seconds - (asyncio.get_running_loop().time() + PHASE) % seconds
    return left if left >= LEAST * seconds else left + seconds


_ours: list[bool] = []
_longest: ContextVar[float] = ContextVar("longest", default=float("inf"))
PROC = Path("/proc")
STARTED = 19
"""Of the fields of /proc/PID/stat behind the process's name: when it started."""


def claim_process() -> None:
    """Say that this process runs nothing but Eden Memory, before it connects to anything."""
    _ours.append(True)


def process_is_ours() -> bool:
    """Whether somebody has said so."""
    return bool(_ours)


@contextmanager
def answering_within(seconds: float) -> Generator[None]:
    """Give a server that does not answer no more than so many seconds in the block."""
    before = _longest.set(seconds)
    try:
        yield
    finally:
        _longest.reset(before)


def patience(seconds: float) -> float:
    """Return how long to wait for a server's first answer: the seconds, or fewer where a person waits."""
    return min(seconds, _longest.get())


def naming_process(name: str) -> str:
    """`eden-memory` → `eden-memory.<kernel>.<pid>.<start>`; unchanged where the system does not tell."""
    kernel, fields = _kernel(), _fields(os.getpid())
    return name if kernel is None or fields is None else f"{name}.{kernel}.{os.getpid()}.{fields[STARTED]}"


def proved_dead(name: str) -> bool:
    """Whether the process that :func:`naming_process` named has ended; False wherever that cannot be proved.

    It can only of a process of this boot and this pid namespace: a pid that is gone, or that started another time.
    """
    parts = name.split(".")
    if len(parts) != 4 or parts[1] != _kernel() or not parts[2].isdecimal():
        return False
    try:
        os.kill(int(parts[2]), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass  # it is there, and belongs to somebody else
    fields = _fields(int(parts[2]))
    return fields is not None and fields[STARTED] != parts[3]


def _kernel() -> str | None:
    """This boot, with the namespaces of pids and of start times; None where /proc is not this process's own."""
    try:
        if os.readlink(PROC / "self") != str(os.getpid()):
            return None
        boot = (PROC / "sys/kernel/random/boot_id").read_text()
        namespaces = [os.readlink(PROC / "self/ns" / kind) for kind in ("pid", "time")]
    except OSError:
        return None
    return blake2b(f"{boot} {namespaces}".encode(), digest_size=6).hexdigest()


def _fields(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat behind the process's name; None where there are none."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def in_utc(moment: datetime) -> datetime:
    """Return the time in UTC; one without a zone is in UTC already.

    Invalid for the first or last hours of the calendar in another zone: UTC has no such time, nor has MongoDB.
    """
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise Invalid("a time lies outside of the calendar", "In UTC its year is 1 to 9999.") from None
