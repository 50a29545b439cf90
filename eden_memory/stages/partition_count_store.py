"""How many partitions of each compacted topic keys are spread over, recorded when the topic is first seen.

A key has to keep its partition for ever. Kafka's own tools may add partitions to a topic; those stay unused.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import DuplicateKeyError
from pymongo.write_concern import WriteConcern

from eden_memory.names import Names

ID = "partitions:"


@dataclass(frozen=True, slots=True)
class PartitionCount:
    """The partitions of a topic over which keys are spread, and how many an operator knows of."""

    used: int
    known: int


class PartitionCounts:
    """A document a topic in `installation`; topics by their full names."""

    def __init__(self, database: AsyncDatabase[dict[str, Any]], names: Names) -> None:
        self._rows = database.get_collection(
            names["installation"], write_concern=WriteConcern("majority", j=True)
        )

    async def all(self) -> dict[str, PartitionCount]:
        """Return what is recorded."""
        rows = self._rows.find({"_id": {"$regex": f"^{ID}"}})
        return {row["_id"].removeprefix(ID): PartitionCount(row["used"], row["known"]) async for row in rows}

    async def used(self) -> dict[str, int]:
        """Return, by topic, the number of partitions over which keys are spread."""
        return {topic: count.used for topic, count in (await self.all()).items()}

    async def record(self, topic: str, used: int, known: int) -> None:
        """Record a topic's counts; if it is recorded already, only `known` changes."""
        counts = {"$set": {"known": known}, "$setOnInsert": {"used": used}}
        try:
            await self._rows.update_one({"_id": ID + topic}, counts, upsert=True)
        except DuplicateKeyError:  # another process was first
            await self._rows.update_one({"_id": ID + topic}, {"$set": {"known": known}})

    async def forget(self, topics: Iterable[str]) -> None:
        """Remove what is recorded of topics that were deleted."""
        await self._rows.delete_many({"_id": {"$in": [ID + topic for topic in topics]}})
