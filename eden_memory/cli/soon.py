"""What a command says beside its answer: only where the servers give it at once."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from pymongo.errors import PyMongoError

from eden_memory.errors import EdenError

T = TypeVar("T")
ANSWER_SECONDS = 3.0


async def soon(work: Awaitable[T], seconds: float = ANSWER_SECONDS) -> T | None:
    """What the work gives; None where no server answers within so many seconds, or it may not be asked."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except (EdenError, PyMongoError, TimeoutError):
        return None
