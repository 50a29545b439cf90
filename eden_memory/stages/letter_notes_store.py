"""Dead letters as the index knows them, for people. Loads no Kafka client."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.names import Names
from eden_memory.schemas.documents import IndexedDeadLetter


class LetterNotes:
    """Which letters were ended, and which nobody can read."""

    def __init__(self, database: AsyncDatabase[dict[str, Any]], names: Names) -> None:
        self._letters = database[names[IndexedDeadLetter.COLLECTION]]

    async def ended(self) -> set[str]:
        """Return the ids of all letters that were ended."""
        found = self._letters.find({"ended_by": {"$ne": None}}, {"_id": 1})
        return {row["_id"] async for row in found}

    async def unreadable(self) -> Mapping[str, tuple[int, datetime]]:
        """Return how many letters cannot be read, by topic, and when Kafka has deleted the last of them."""
        counts, until = Counter[str](), dict[str, datetime]()
        async for row in self._letters.find({"named": {"$size": 0}}, {"topic": 1, "ends_at": 1}):
            counts[row["topic"]] += 1
            until[row["topic"]] = max(row["ends_at"], until.get(row["topic"], row["ends_at"]))
        return {topic: (count, until[topic]) for topic, count in sorted(counts.items())}
