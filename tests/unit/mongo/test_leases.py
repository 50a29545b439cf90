"""A lease that is waited for, and lost, around a server that misbehaves (imitated: real ones cannot be timed so)."""

import asyncio
from typing import Any

import pytest
from pymongo.errors import AutoReconnect

from eden_memory.mongo.leases import LeaseLost, MongoLease


class Silent:
    """A collection that never answers; cancelled, it reports a broken connection as the driver may."""

    async def find_one(self, *_: Any, **__: Any) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise AutoReconnect("connection closed") from None


class GivenAway:
    """A collection that gives the lease at once and then belongs to somebody else."""

    async def find_one(self, *_: Any, **__: Any) -> None:
        return None

    async def find_one_and_update(self, *_: Any, **__: Any) -> dict[str, int]:
        return {"epoch": 1}

    async def update_one(self, *_: Any, **__: Any) -> Any:
        class Result:
            matched_count = 0

        return Result()


def lease(collection: Any, seconds: float) -> MongoLease:
    return MongoLease(collection, "lease", seconds)


async def test_waiting_for_a_lease_ends_when_it_is_cancelled_whatever_the_driver_makes_of_it() -> None:
    async def wait() -> None:
        async with lease(Silent(), 60).held():
            pass

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    done, _ = await asyncio.wait({waiting}, timeout=10)
    assert done
    assert waiting.cancelled()


async def test_losing_a_lease_interrupts_its_holder() -> None:
    with pytest.raises(LeaseLost):
        async with lease(GivenAway(), 0.2).held():
            await asyncio.sleep(60)
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_a_holder_that_fails_as_the_lease_is_lost_tells_its_own_failure() -> None:
    async def fail() -> None:
        async with lease(GivenAway(), 0.2).held():
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                raise RuntimeError("its own") from None

    with pytest.raises(RuntimeError, match="its own"):
        await fail()
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()
