"""Memory as it is written: a change stream over the memory collections, for people who watch."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.domain.names import Names
from eden_memory.domain.progress import Noticed

COLLECTIONS = ("windows", "facts", "reflections", "consolidated")


@asynccontextmanager
async def memory_feed(
    database: AsyncDatabase[dict[str, Any]], names: Names
) -> AsyncGenerator[AsyncGenerator[Noticed]]:
    """Everything written from the moment that the block is entered; vectors and histories are left out."""
    kinds = {names[name]: name for name in COLLECTIONS}
    pipeline: list[dict[str, Any]] = [
        {
            "$match": {
                "ns.coll": {"$in": list(kinds)},
                "operationType": {"$in": ["insert", "update", "replace"]},
            }
        },
        {"$unset": ["fullDocument.embedding", "fullDocument.history", "updateDescription"]},
    ]
    async with await database.watch(pipeline, full_document="updateLookup") as stream:

        async def noticed() -> AsyncGenerator[Noticed]:
            async for change in stream:
                if change.get("fullDocument") is not None:
                    yield Noticed(kinds[change["ns"]["coll"]], change["fullDocument"])

        yield noticed()
