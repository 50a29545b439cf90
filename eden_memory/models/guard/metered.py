"""A request with a stopwatch: what never left is no call, what left is one however it ends."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

T = TypeVar("T")
Send = Callable[[], Awaitable[T]]
LEAST = 1e-6


@dataclass(slots=True)
class Stopwatch:
    """When a call left, by the wall clock, and how many seconds it took."""

    started_at: datetime = datetime.min
    seconds: float = 0.0
    left: bool = False

    @property
    def ended_at(self) -> datetime:
        """When its answer was here."""
        return self.started_at + timedelta(seconds=self.seconds)


async def metered(
    send: Callable[[], Awaitable[T]],
    through: Callable[[Callable[[], Awaitable[T]]], Awaitable[T]],
    failed: Callable[[Stopwatch, BaseException], None],
) -> tuple[T, Stopwatch]:
    """Send by way of `through` (which may refuse); a call that left and failed is given to `failed`."""
    watch = Stopwatch()

    async def timed() -> T:
        watch.left, watch.started_at, begun = True, datetime.now(UTC), time.perf_counter()
        try:
            return await send()
        finally:
            watch.seconds = max(LEAST, time.perf_counter() - begun)

    try:
        return await through(timed), watch
    except BaseException as error:
        if watch.left:
            failed(watch, error)
        raise
