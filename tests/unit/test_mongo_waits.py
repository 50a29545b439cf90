"""A wait inside PyMongo that is cancelled leaves its lock free: else every later operation would wait for ever."""

import asyncio

import pytest
from pymongo import lock as pymongo_lock

from eden_memory.mongo.trigger.waits import let_waits_be_cancelled


@pytest.mark.parametrize("ticks", range(8))
async def test_a_wait_that_is_cancelled_while_it_times_out_leaves_the_lock_alone(ticks: int) -> None:
    let_waits_be_cancelled()
    lock = pymongo_lock._async_create_lock()  # pyright: ignore[reportPrivateUsage]
    condition = pymongo_lock._async_create_condition(lock)  # pyright: ignore[reportPrivateUsage]

    async def wait() -> None:
        async with condition:
            await pymongo_lock._async_cond_wait(condition, 0.01)  # pyright: ignore[reportPrivateUsage]

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    async with condition:
        await asyncio.sleep(0.05)  # it has timed out, and wants the lock back
        waiting.cancel()
        for _ in range(ticks):
            await asyncio.sleep(0)  # who was cancelled must not give back the lock that is held here
            assert lock.locked()
    await asyncio.gather(waiting, return_exceptions=True)
    async with asyncio.timeout(5):
        await lock.acquire()
