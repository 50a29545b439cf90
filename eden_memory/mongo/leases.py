"""A lease in MongoDB, timed by the server's clock: one holder at a time, each with an epoch above all before."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from pymongo import ReturnDocument
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import DuplicateKeyError, PyMongoError

from eden_memory.errors import EdenError
from eden_memory.tasks import naming_process, proved_dead, until_tick


class LeaseLost(EdenError):  # noqa: N818 - reads as what happened
    """Another process has taken over; this one may not publish what it still holds."""


RELEASE_SECONDS = 0.7
"""Seconds to wait for a server that does not answer, so that a stop is not held up; the lease expires by itself."""


class MongoLease:
    """`name` is the lease's id; a holder that has not renewed it for `seconds`, or is proved dead, is replaced."""

    def __init__(self, leases: AsyncCollection[dict[str, Any]], name: str, seconds: float) -> None:
        self._leases, self._name, self._seconds = leases, name, seconds
        self._holder = naming_process(uuid4().hex)

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[int]:
        """Wait for the lease, keep it inside, give it back; losing it cancels the body: LeaseLost.

        So does an error of the keeper that is not the server's; that error is raised then.
        """
        epoch = await self._acquired()
        body = _current()
        cancelled_before = body.cancelling()
        lost = asyncio.Event()
        keeper = asyncio.create_task(self._keep(epoch, body, lost))
        try:
            yield epoch
        except asyncio.CancelledError:
            if lost.is_set() and body.uncancel() <= cancelled_before:
                raise self._why_lost(keeper) from None
            raise
        except Exception:
            if lost.is_set() and body.cancelling() > cancelled_before:
                body.uncancel()  # this cancellation came from the keeper, so it must not count against what runs next
            raise
        finally:
            keeper.cancel()
            await self._given_back(epoch, keeper, lost)

    async def _given_back(self, epoch: int, keeper: "asyncio.Task[None]", lost: asyncio.Event) -> None:
        try:
            await asyncio.gather(keeper, return_exceptions=True)
            await self._release(epoch)
        except asyncio.CancelledError:
            if not lost.is_set():  # the keeper's cancellation may arrive while the body ends by itself
                raise
            _current().uncancel()

    def _why_lost(self, keeper: "asyncio.Task[None]") -> BaseException:
        failed = keeper.exception() if keeper.done() and not keeper.cancelled() else None
        return failed or LeaseLost(f"the lease {self._name} was lost: another process may have taken over")

    async def _acquired(self) -> int:
        while True:
            try:
                async with asyncio.timeout(self._seconds):
                    epoch = await self._try()
                if epoch is not None:
                    return epoch
            except (PyMongoError, TimeoutError):
                pass  # the server is away: waiting for the lease and waiting for the server are the same
            # The driver may answer a cancellation with an error of its own, or continue as if nothing had happened.
            if _current().cancelling():
                raise asyncio.CancelledError
            await asyncio.sleep(min(0.4, self._seconds / 5))

    async def _try(self) -> int | None:
        there = await self._leases.find_one({"_id": self._name}, {"holder": 1})
        holder = None if there is None else there.get("holder")
        free: dict[str, Any] = {"_id": self._name, "$expr": {"$lt": ["$until", "$$NOW"]}}
        if holder is not None and proved_dead(holder):
            free = {"_id": self._name, "holder": holder}
        taken = await self._leases.find_one_and_update(
            free,
            [{"$set": {"holder": self._holder, "epoch": {"$add": ["$epoch", 1]}, "until": self._until()}}],
            return_document=ReturnDocument.AFTER,
        )
        if taken is not None:
            return int(taken["epoch"])
        if there is not None:
            return None
        try:
            await self._leases.update_one(
                {"_id": self._name},
                [{"$set": {"epoch": {"$ifNull": ["$epoch", 0]}, "until": {"$ifNull": ["$until", "$$NOW"]}}}],
                upsert=True,
            )
        except DuplicateKeyError:
            return None
        return None

    def _until(self) -> dict[str, Any]:
        return {"$add": ["$$NOW", int(self._seconds * 1000)]}

    async def _keep(self, epoch: int, body: asyncio.Task[Any], lost: asyncio.Event) -> None:
        """Renew the lease until it is lost for any reason; then cancel the body."""
        try:
            await self._renew_regularly(epoch)
        except asyncio.CancelledError:
            raise
        except BaseException:
            lost.set()
            body.cancel()
            raise
        lost.set()
        body.cancel()

    async def _renew_regularly(self, epoch: int) -> None:
        good_until = time.monotonic() + self._seconds
        while True:
            left = max(0.0, good_until - time.monotonic())
            await asyncio.sleep(min(until_tick(self._seconds / 4), left))
            asked = time.monotonic()
            try:
                async with asyncio.timeout(max(good_until - asked, 0.001)):
                    ours = await self._renew(epoch)
            except PyMongoError:
                ours = None
            except TimeoutError:
                ours = False
            if ours:
                good_until = asked + self._seconds
            elif ours is False or time.monotonic() >= good_until:
                return

    async def _renew(self, epoch: int) -> bool:
        mine = {"_id": self._name, "holder": self._holder, "epoch": epoch}
        result = await self._leases.update_one(mine, [{"$set": {"until": self._until()}}])
        return result.matched_count == 1

    async def _release(self, epoch: int) -> None:
        mine = {"_id": self._name, "holder": self._holder, "epoch": epoch}
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._leases.update_one(mine, [{"$set": {"until": "$$NOW"}}])
        except (PyMongoError, TimeoutError):
            return  # the lease expires by itself


def _current() -> "asyncio.Task[Any]":
    task = asyncio.current_task()
    assert task is not None
    return task
