"""Ending tasks that were told to: a cancellation may get lost on the way in a library."""

import asyncio
from collections.abc import Iterable
from typing import Any

AGAIN_SECONDS = 1.0


async def end(jobs: Iterable[asyncio.Future[Any]], again_seconds: float = AGAIN_SECONDS) -> None:
    """Cancel the jobs, again where they go on, until all have ended; what they raise is left to be asked for.

    PyMongo 4.20 goes on reading a change stream when the cancellation meets the answer that it waits for: one
    stop in a hundred of a stage that had just started then never ended.
    """
    everyone = list(jobs)
    left = {job for job in everyone if not job.done()}
    while left:
        for job in left:
            job.cancel()
        _, left = await asyncio.wait(left, timeout=again_seconds)
    await asyncio.gather(*everyone, return_exceptions=True)
