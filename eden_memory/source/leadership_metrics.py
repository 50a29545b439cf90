"""How a leadership stands, as metrics: by the clock, so also while nothing moves."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from eden_memory import metrics
from eden_memory.source.leading import Leading
from eden_memory.source.oplog import OplogWindow
from eden_memory.task_ending import end

Window = Callable[[], Awaitable[OplogWindow | None]]
EVERY_SECONDS, OPLOG_SECONDS = 1.0, 15.0
OURS = (
    metrics.TAILER_LAG,
    metrics.TAILER_POSITION_AGE,
    metrics.TAILER_OPLOG_LEFT,
    metrics.TAILER_OPLOG_BYTES_LEFT,
    metrics.TAILER_OPLOG_WINDOW,
)


@asynccontextmanager
async def measured(leading: Leading, window: Window | None) -> AsyncGenerator[None]:
    """Keep the figures right for the block; behind it they are 0."""
    work = asyncio.create_task(_measure(leading, window))
    try:
        yield
    finally:
        await end([work])
        for gauge in OURS:
            gauge.set(0)


async def _measure(leading: Leading, window: Window | None) -> None:
    asked = -OPLOG_SECONDS
    while True:
        _by_the_clock(leading)
        place = leading.saved is not None
        if window is not None and place and time.monotonic() - asked >= OPLOG_SECONDS:
            asked = time.monotonic()
            _place(leading, await window())
        await asyncio.sleep(EVERY_SECONDS)


def _by_the_clock(leading: Leading) -> None:
    now = datetime.now(UTC)
    if leading.position is not None:
        until = leading.published_until or moment_of(leading.position.version)
        metrics.TAILER_LAG.set(max(0.0, (now - until).total_seconds()))
    if leading.saved is not None:
        metrics.TAILER_POSITION_AGE.set(max(0.0, (now - moment_of(leading.saved.version)).total_seconds()))


def _place(leading: Leading, window: OplogWindow | None) -> None:
    if window is None:
        return
    metrics.TAILER_OPLOG_WINDOW.set(window.seconds)
    left = window.left(moment_of(leading.saved.version)) if leading.saved is not None else None
    if left is not None:
        seconds, room = left
        metrics.TAILER_OPLOG_LEFT.set(max(1.0, seconds))
        metrics.TAILER_OPLOG_BYTES_LEFT.set(max(1.0, room))


def moment_of(version: str) -> datetime:
    """The cluster time that a version is, to the second."""
    return datetime.fromtimestamp(int(version[:8], 16), UTC)
