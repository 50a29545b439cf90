"""Requests of the same moment, brought together for one round trip."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


RECENT = 30
"""Whoever comes so many lingers after the last round was alone, and does not wait for others."""


class Batching(Generic[T]):
    """Collects what is added in the same moment, and within `linger` seconds where rounds follow each other.

    `work` settles each item and never raises.
    """

    def __init__(self, work: Callable[[list[T]], Awaitable[None]], linger: float) -> None:
        self._work, self._linger = work, linger
        self._waiting: list[T] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._last = -math.inf

    def add(self, item: T) -> None:
        """Let it be worked on with what else comes now."""
        self._waiting.append(item)
        if len(self._waiting) == 1:
            task = asyncio.create_task(self._soon())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End what is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _soon(self) -> None:
        clock = asyncio.get_running_loop().time
        alone = clock() - self._last > self._linger * RECENT
        await asyncio.sleep(0.0 if alone else self._linger)
        self._last = clock()
        items, self._waiting = self._waiting, []
        await self._work(items)
