"""Running tasks side by side until the first ends, and ending them: a cancellation may get lost in a library."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Coroutine, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from types import TracebackType
from typing import Any, TypeVar

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
