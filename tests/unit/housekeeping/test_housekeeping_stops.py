"""A leased part such as the janitor's ends when it is told to, also where its round loses the cancellation."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from eden_memory.stages.leased import Leased


class Held:
    """A lease that is always there."""

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[int]:
        yield 1


class Deaf:
    """A round that loses its first cancellation, as a library may."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.lost = 0

    async def round(self) -> Any:
        self.begun.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        self.lost += 1
        await asyncio.Event().wait()


class Failing:
    """A round with a defect."""

    async def round(self) -> Any:
        raise ValueError("a defect")


async def test_a_round_that_loses_its_cancellation_is_cancelled_again() -> None:
    deaf = Deaf()
    part = Leased("janitor", Held(), deaf.round, every=3_600, pause=30)
    async with asyncio.timeout(30):
        running = asyncio.create_task(part.run())
        await deaf.begun.wait()
        part.stop()
        await running
    assert deaf.lost == 1


async def test_what_a_round_raises_ends_the_part() -> None:
    with pytest.raises(ValueError, match="a defect"):
        await Leased("janitor", Held(), Failing().round, every=3_600, pause=30).run()
