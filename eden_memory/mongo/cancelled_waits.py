"""PyMongo's waits under cancellation, for Python 3.11: a lock that is lost there stops the whole client for ever."""

import asyncio
import sys
from collections.abc import Awaitable
from typing import Any

from pymongo import lock

NEEDED = sys.version_info < (3, 12)
"""A test fails once PyMongo keeps its lock there, too."""


async def _wait_here(awaitable: Awaitable[Any], timeout: float | None) -> Any:
    async with asyncio.timeout(timeout):
        return await awaitable


def let_waits_be_cancelled() -> None:
    """Replace what PyMongo waits with (`pymongo.lock.wait_for`), as Python 3.12 does itself.

    Before 3.12 `asyncio.wait_for` waits in a task of its own. Who is cancelled while the wait times out goes on
    without it; that task then takes the pool's lock, and nobody gives it back.
    """
    if NEEDED:
        setattr(lock, "wait_for", _wait_here)  # noqa: B010 - not a name that the module exports
