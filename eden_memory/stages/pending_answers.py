"""Answers on their way into their store while the handler that asked goes on; its decision waits for them."""

import asyncio
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")


class KeptElsewhere(Exception):  # noqa: N818 - it is a direction, not an error
    """Another's answer to the same question was stored first: what was worked out from ours does not count."""


class Keeping:
    """The writes of one attempt of a handler, each with what it is to leave in the store."""

    def __init__(self) -> None:
        self._writes: dict[asyncio.Task[Any], Any] = {}
        self.unanswered = set[str]()
        """Units that were looked up in this attempt, and for which nothing had arrived."""

    @property
    def writes(self) -> list[asyncio.Task[Any]]:
        """Those that nobody has waited for."""
        return list(self._writes)

    def begin(self, write: Coroutine[Any, Any, T], own: T) -> "asyncio.Task[T]":
        """Start a write at once; the handler goes on with `own` as if it were stored."""
        task = asyncio.create_task(write)
        self._writes[task] = own
        return task

    async def stored(self, write: "asyncio.Task[T]") -> T:
        """What is stored in the end, for who goes on with that."""
        self._writes.pop(write, None)
        return await write

    async def done(self) -> list[Exception]:
        """Wait until each has ended; what those raised that failed, and KeptElsewhere for each that came second."""
        if not self._writes:
            return []
        writes = dict(self._writes)
        ended = await asyncio.gather(*writes, return_exceptions=True)
        self._writes.clear()
        problems: list[Exception] = []
        for own, one in zip(writes.values(), ended, strict=True):
            if isinstance(one, Exception):
                problems.append(one)
            elif one != own:
                problems.append(KeptElsewhere("another's answer to the same question was kept first"))
        return problems


KEEPING: ContextVar[Keeping | None] = ContextVar("writes of this handler", default=None)
"""None: nobody would wait, so what is stored is stored before its reader goes on."""
