"""A request that reads whole partitions runs once at a time, and not for ever."""

import asyncio

import pytest

from eden_memory.errors import Conflict
from eden_memory.operations.operator_calls import LongRead


async def test_who_comes_meanwhile_is_refused_at_once_and_let_in_afterwards() -> None:
    read = LongRead("preview", "eden x")
    async with read.turn():
        with pytest.raises(Conflict, match="another preview is running"):
            async with read.turn():
                pass
    async with read.turn():
        pass


async def test_what_takes_too_long_ends_and_lets_others_in() -> None:
    read = LongRead("preview", "eden x", seconds=0.01)
    with pytest.raises(Conflict, match=r"took more than 0\.01 s"):
        async with read.turn():
            await asyncio.Event().wait()
    with pytest.raises(TimeoutError, match="a broker"):
        async with read.turn():
            raise TimeoutError("a broker")
