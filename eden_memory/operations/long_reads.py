"""Requests that read whole Kafka partitions: each kind runs once at a time in a process, and not for ever."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from threading import Lock

from eden_memory.errors import Conflict

MOST_SECONDS = 60.0


class LongRead:
    """One kind of request; `what` names it in errors, `instead` is the command for what takes longer."""

    def __init__(self, what: str, instead: str, seconds: float = MOST_SECONDS) -> None:
        self._what, self._instead, self._seconds = what, instead, seconds
        self._running = Lock()  # not of asyncio: the synchronous service has an event loop of its own

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Raise Conflict at once while another request is running, or when this one takes too long."""
        if not self._running.acquire(blocking=False):
            raise Conflict(f"another {self._what} is running", "Ask again when it has ended.")
        limit = asyncio.timeout(self._seconds)
        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise Conflict(
                f"the {self._what} took more than {self._seconds:g} s", f"Use `{self._instead}`."
            ) from None
        finally:
            self._running.release()
