"""A wait inside PyMongo that is cancelled leaves its lock free: else every later operation would wait for ever."""

import asyncio
import sys

import pytest
from pymongo import lock as pymongo_lock

from eden_memory.mongo.client import let_waits_be_cancelled

TICKS = range(8)


async def keeps_its_lock(ticks: int) -> bool:
    """Whether who is cancelled while its wait times out leaves a lock alone that somebody else holds."""
    lock = pymongo_lock._async_create_lock()  # pyright: ignore[reportPrivateUsage]
    condition = pymongo_lock._async_create_condition(lock)  # pyright: ignore[reportPrivateUsage]
    kept = True

    async def wait() -> None:
        async with condition:
            await pymongo_lock._async_cond_wait(condition, 0.01)  # pyright: ignore[reportPrivateUsage]

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    await lock.acquire()
    await asyncio.sleep(0.05)  # it has timed out, and wants the lock back
    waiting.cancel()
    for _ in range(ticks):
        await asyncio.sleep(0)
        kept = kept and lock.locked()
    if lock.locked():
        lock.release()
    await asyncio.gather(waiting, return_exceptions=True)
    try:
        async with asyncio.timeout(1):
            await lock.acquire()
    except TimeoutError:
        return False
    return kept


@pytest.mark.parametrize("ticks", TICKS)
async def test_a_wait_that_is_cancelled_while_it_times_out_leaves_the_lock_alone(ticks: int) -> None:
    let_waits_be_cancelled()
    assert await keeps_its_lock(ticks)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="the patch is not applied")
async def test_pymongo_needs_the_patch_on_python_3_11(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pymongo_lock, "wait_for", asyncio.wait_for)
    kept = [await keeps_its_lock(ticks) for ticks in TICKS]
    assert not all(kept), (
        "PyMongo has mended it: remove let_waits_be_cancelled of eden_memory/mongo/client.py"
    )
