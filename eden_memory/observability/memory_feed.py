"""Memory as it is written: a change stream over the memory collections, for people who watch."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.names import Names
from eden_memory.observability.formation_progress import MemoryChange

COLLECTIONS = ("windows", "facts", "reflections", "consolidated")
VERSIONED = ("facts", "consolidated")


@asynccontextmanager
async def memory_feed(
    database: AsyncDatabase[dict[str, Any]], names: Names
) -> AsyncGenerator[AsyncGenerator[MemoryChange]]:
    """Yield what is new from the moment that the block is entered; vectors and histories are left out.

    New is a document, and a new version of a fact or blob: that a blob absorbs a reflection from before is not.
    """
    kinds = {names[name]: name for name in COLLECTIONS}
    pipeline: list[dict[str, Any]] = [
        {
            "$match": {
                "$or": [
                    {"ns.coll": {"$in": list(kinds)}, "operationType": "insert"},
                    {"ns.coll": {"$in": [names[name] for name in VERSIONED]}, "operationType": "replace"},
                ]
            }
        },
        {"$unset": ["fullDocument.embedding", "fullDocument.history", "updateDescription"]},
    ]
    async with await database.watch(pipeline, full_document="updateLookup") as stream:

        async def noticed() -> AsyncGenerator[MemoryChange]:
            async for change in stream:
                if change.get("fullDocument") is not None:
                    yield MemoryChange(kinds[change["ns"]["coll"]], change["fullDocument"])

        yield noticed()
