"""Watching ends with its block, also where what it stands on has lost a cancellation."""

import asyncio
from contextlib import suppress

from eden_memory.observability.watching import _running  # pyright: ignore[reportPrivateUsage]


async def test_work_that_loses_a_cancellation_is_cancelled_again() -> None:
    lost = 0

    async def deaf() -> None:
        nonlocal lost
        while lost < 3:
            with suppress(asyncio.CancelledError):
                try:
                    await asyncio.sleep(3_600)
                finally:
                    lost += 1

    async with asyncio.timeout(60):
        async with _running(deaf()):
            await asyncio.sleep(0)
    assert lost == 3


async def test_what_the_block_raises_is_raised_once_the_work_has_ended() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(3_600)
        finally:
            ended.set()

    try:
        async with _running(work()):
            await asyncio.sleep(0)
            raise ValueError("of the block")
    except* ValueError:
        pass
    assert ended.is_set()
