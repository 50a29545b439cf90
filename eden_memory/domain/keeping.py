"""Answers on their way into their store while the handler that asked goes on; its decision waits for them."""

import asyncio
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")


class Keeping:
    """The writes of one attempt of a handler."""

    def __init__(self) -> None:
        self.writes: list[asyncio.Task[Any]] = []

    def begin(self, write: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start a write at once; whoever needs its result waits for the task."""
        task = asyncio.create_task(write)
        self.writes.append(task)
        return task

    async def done(self) -> list[BaseException]:
        """Wait until each has ended; what those raised that failed."""
        writes, self.writes = self.writes, []
        ended = await asyncio.gather(*writes, return_exceptions=True) if writes else ()
        return [one for one in ended if isinstance(one, BaseException)]


KEEPING: ContextVar[Keeping | None] = ContextVar("writes of this handler", default=None)
"""None: nobody would wait, so what is stored is stored before its reader goes on."""
