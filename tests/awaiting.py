"""Waiting for what tests expect."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

SOON = 120.0


async def until(condition: Callable[[], Any], what: str, seconds: float = SOON) -> None:
    """Wait until a condition (or what it awaits) holds."""
    end = time.monotonic() + seconds
    while True:
        result = condition()
        if asyncio.iscoroutine(result):
            result = await result
        if result:
            return
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.02)


async def gives(found: Awaitable[Any], wanted: Any) -> bool:
    """Whether an awaited value is as it should be."""
    return await found == wanted
