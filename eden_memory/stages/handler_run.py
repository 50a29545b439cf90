"""One run of a handler: its deadline, its model calls, and answers that are being stored."""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, TypeVar

from eden_memory.errors import describe
from eden_memory.logs import LibraryLogger
from eden_memory.names import traceparent
from eden_memory.schemas.events import ModelCalled
from eden_memory.stages.codec import TopicOf, record_of
from eden_memory.stages.outcome import Publishing, StoredRecord
from eden_memory.tasks import end

T = TypeVar("T")
log = LibraryLogger()
MOST_WAITING = 10_000
USAGE_SOURCE = "models"
"""`ce_source` of calls that stages publish this way."""


class KeptElsewhere(Exception):  # noqa: N818 - it is a direction, not an error
    """Another worker's answer to the same question was stored first: a result derived from ours does not count."""


class HandlerRun:
    """Collects the model calls of one handler run, and the writes that must be stored before its result counts.

    Entered, it is the run of the current task. Leaving waits for the writes; it raises what a write raised, or
    KeptElsewhere, unless the handler itself has failed.
    """

    def __init__(self, stop_clock: Callable[[], AbstractContextManager[None]] = nullcontext[None]) -> None:
        """`stop_clock`: stops the handler's deadline while the block runs."""
        self.calls: list[ModelCalled] = []
        self.unanswered = set[str]()
        """Units that were looked up in this run, and for which no answer had arrived."""
        self.stop_clock = stop_clock
        self._writes: dict[asyncio.Task[Any], Any] = {}
        self._token: Token[HandlerRun | None] | None = None

    async def __aenter__(self) -> "HandlerRun":
        self._token = RUN.set(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            RUN.reset(self._token)
        try:
            problems = [] if isinstance(error, asyncio.CancelledError) else await self.done()
        finally:
            if self._writes:  # only if this was cancelled
                await end(list(self._writes))
        if error is None and problems:
            raise next((found for found in problems if not isinstance(found, KeptElsewhere)), problems[0])

    def begin(self, write: Coroutine[Any, Any, T], own: T) -> "asyncio.Task[T]":
        """Start a write at once; the handler continues with `own` as if it were stored."""
        task = asyncio.create_task(write)
        self._writes[task] = own
        return task

    async def stored(self, write: "asyncio.Task[T]") -> T:
        """Wait for one write; return the document that was stored."""
        self._writes.pop(write, None)
        return await write

    async def done(self) -> list[Exception]:
        """Wait for all writes; return their errors, and a KeptElsewhere for each that another worker preceded."""
        if not self._writes:
            return []
        writes = dict(self._writes)
        results = await asyncio.gather(*writes, return_exceptions=True)
        self._writes.clear()
        problems: list[Exception] = []
        for own, stored in zip(writes.values(), results, strict=True):
            if isinstance(stored, Exception):
                problems.append(stored)
            elif stored != own:
                problems.append(KeptElsewhere("another's answer to the same question was kept first"))
        return problems


RUN: ContextVar[HandlerRun | None] = ContextVar("run of this handler", default=None)
"""The run for which the current task works; None outside of a handler."""


def note(call: ModelCalled) -> None:
    """Add a call to the current run; ignored outside of a handler."""
    if (run := RUN.get()) is not None:
        run.calls.append(call)


@contextmanager
def off_the_clock() -> Generator[None]:
    """Stop the current run's deadline for the block: a model call has a deadline of its own."""
    run = RUN.get()
    with nullcontext() if run is None else run.stop_clock():
        yield


class UsageLog:
    """Publishes calls in the background, in batches."""

    def __init__(self, publisher: Publishing, topic_of: TopicOf, source: str) -> None:
        self._publisher, self._topic_of, self._source = publisher, topic_of, source
        self._waiting: list[ModelCalled] = []
        self._sending: asyncio.Task[None] | None = None

    def add(self, calls: Sequence[ModelCalled]) -> None:
        """Queue calls for publishing; beyond a bound the oldest are dropped, which is logged."""
        self._waiting += calls
        if (beyond := len(self._waiting) - MOST_WAITING) > 0:
            del self._waiting[:beyond]
            log.warning("usage records let go", count=beyond)
        if self._waiting and (self._sending is None or self._sending.done()):
            self._sending = asyncio.create_task(self._send())

    async def flush(self, seconds: float = 5.0) -> None:
        """Wait until everything is sent, for at most so many seconds."""
        if self._sending is not None:
            await asyncio.wait([self._sending], timeout=seconds)

    async def _send(self) -> None:
        while self._waiting:
            calls, self._waiting = self._waiting, []
            try:
                await self._publisher.publish([self._record(call) for call in calls])
            except Exception as error:  # noqa: BLE001 - accounting never stops the work
                log.warning("usage not published", calls=len(calls), error=describe(error))

    def _record(self, call: ModelCalled) -> StoredRecord:
        about = call.session_id or call.scope or call.call_id
        return record_of(
            call,
            self._topic_of,
            identity=f"call/{call.call_id}",
            source=self._source,
            time=call.started_at,
            traceparent=traceparent(about, call.cause or call.call_id),
        )
