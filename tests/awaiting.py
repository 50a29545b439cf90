"""Waiting for what tests expect."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

SOON = 120.0


async def until(condition: Callable[[], Any], what: str, seconds: float = SOON) -> None:
    """Wait until a condition (or what it awaits) holds; looks less often the longer it takes."""
    began = time.monotonic()
    while True:
        result = condition()
        if asyncio.iscoroutine(result):
            result = await result
        if result:
            return
        waited = time.monotonic() - began
        assert waited < seconds, f"not within {seconds} s: {what}"
        await asyncio.sleep(min(max(0.02, waited / 10), 0.2))


async def gives(found: Awaitable[Any], wanted: Any) -> bool:
    """Whether an awaited value is as it should be."""
    return await found == wanted
