"""The tailer ends when it is told to, also where waiting for the lease loses the cancellation."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import pytest

from eden_memory.source.leadership import TailerPart


class Deaf:
    """A lease that another holds; waiting for it loses the first cancellation."""

    def __init__(self) -> None:
        self.waited_for = asyncio.Event()
        self.lost = 0

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[int]:
        self.waited_for.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        self.lost += 1
        await asyncio.Event().wait()
        yield 1


class Mine:
    """A lease that is always there."""

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[int]:
        yield 1


async def nothing(epoch: int, stopping: asyncio.Event) -> None:
    raise AssertionError("it never leads")


async def test_a_wait_for_the_lease_that_loses_its_cancellation_is_cancelled_again() -> None:
    lease = Deaf()
    part = TailerPart(lease, nothing, again_seconds=0.01)
    async with asyncio.timeout(30):
        running = asyncio.create_task(part.run())
        await lease.waited_for.wait()
        part.stop()
        await running
    assert lease.lost == 1


async def test_what_a_leadership_raises_ends_the_tailer() -> None:
    async def failing(epoch: int, stopping: asyncio.Event) -> None:
        raise ValueError("a defect")

    with pytest.raises(ValueError, match="a defect"):
        await TailerPart(Mine(), failing).run()
