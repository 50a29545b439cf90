"""Waiting for what must come about, with a generous deadline that names it."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

PATIENCE = 120.0


class NotInTime(AssertionError):  # noqa: N818 - reads as what happened
    """It did not come about."""


async def until(condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    """Poll until it holds; NotInTime, with its name, when the seconds are over."""
    end = time.monotonic() + seconds
    while True:
        if condition():
            return
        if time.monotonic() > end:
            raise NotInTime(f"not within {seconds:.0f} s: {what}")
        await asyncio.sleep(0.05)


async def cancelled(task: asyncio.Task[Any]) -> None:
    """Cancel a task, and wait until it has ended."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
