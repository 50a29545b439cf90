"""`memory_access`: how often each fact was found by a search, and when last."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pymongo import UpdateOne
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.write_concern import WriteConcern

from eden_memory.names import Names
from eden_memory.schemas.documents import Access


class MongoAccesses:
    """Accesses in MongoDB; counts may be lost with a primary, nothing waits for a majority."""

    def __init__(self, database: AsyncDatabase[dict[str, Any]], names: Names) -> None:
        self._access = database.get_collection(names[Access.COLLECTION], write_concern=WriteConcern(1))

    async def count(self, found: Mapping[str, int], at: datetime) -> None:
        """Add to the counts, in one write."""
        writes = [
            UpdateOne(
                {"_id": fact_id},
                {"$inc": {"access_count": times}, "$max": {"last_accessed_at": at}},
                upsert=True,
            )
            for fact_id, times in found.items()
        ]
        if writes:
            await self._access.bulk_write(writes, ordered=False)
