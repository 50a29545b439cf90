"""Steps on our own servers, repeated until they work: what was decided is paid for."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from eden_memory.domain.stage import RetryPolicy
from eden_memory.runtime.failures import Kind, backoff, classify

log = structlog.get_logger()
T = TypeVar("T")
SERVERS = RetryPolicy(first=0.1, cap=5.0)
"""How long storing and publishing wait between two attempts; there is no last one."""


async def until_done(step: Callable[[], Awaitable[T]]) -> T:
    """Repeat a step on our own servers until it works; only what no repeat can cure is raised."""
    attempts = 0
    while True:
        try:
            return await step()
        except Exception as error:
            if classify(error) not in (Kind.AWAY, Kind.TRANSIENT):
                raise
            attempts += 1
            log.warning(
                "server away, tried again", error=f"{type(error).__name__}: {error}", attempt=attempts
            )
            await asyncio.sleep(backoff(SERVERS, attempts))
