"""One command a reform: what forms it, and what drops it, exclude each other."""

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.errors import EdenError
from eden_memory.mongo.leases import MongoLease
from eden_memory.names import Names

LEASE_SECONDS = 15.0
BUSY_SECONDS = 20.0


@asynccontextmanager
async def alone(database: AsyncDatabase[dict[str, Any]], names: Names, name: str) -> AsyncGenerator[None]:
    """Hold the reform's lease; of a command that was killed, it runs out. EdenError where another command has it."""
    lease = MongoLease(database[names["leases"]], _lease(name), LEASE_SECONDS)
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(BUSY_SECONDS):
                await stack.enter_async_context(lease.held())
        except TimeoutError:
            raise EdenError(
                f"another command is forming {name}", "Stop it first, or look at what it says."
            ) from None
        yield


async def at_work(
    database: AsyncDatabase[dict[str, Any]], names: Names, reforms: Collection[str]
) -> set[str]:
    """Those of the reforms that a command is forming, or dropping."""
    leases = {_lease(reform): reform for reform in reforms}
    held = {"_id": {"$in": list(leases)}, "$expr": {"$gte": ["$until", "$$NOW"]}}
    return {leases[row["_id"]] async for row in database[names["leases"]].find(held, {"_id": 1})}


def _lease(name: str) -> str:
    return f"reform/{name}"
