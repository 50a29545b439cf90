"""Read who may see session memory with an audience too large to list; formation-trigger stores it."""

from collections.abc import Collection
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.directory.participants import Audiences
from eden_memory.names import Names
from eden_memory.schemas.documents import SessionState, Snapshot

PAGE = 100
"""Sessions whose audiences are read together."""
KEPT = {"audience_changes": 1}


class MongoAudiences:
    """`database` is our own."""

    def __init__(self, database: AsyncDatabase[dict[str, Any]], names: Names) -> None:
        self._sessions = database[names[SessionState.COLLECTION]]
        self._snapshots = database[names[Snapshot.COLLECTION]]

    async def of(self, session_ids: Collection[str]) -> dict[str, Audiences]:
        """Return the audiences by session; sessions without one are left out."""
        if not session_ids:
            return {}
        found = self._sessions.find({"_id": {"$in": list(session_ids)}}, KEPT)
        return {row["_id"]: Audiences.of_row(row) async for row in found}

    async def heard_by(self, user_id: str | None) -> dict[str, str]:
        """Return scope key → session of the large audiences with the user; None: nobody in particular."""
        if user_id is None:
            return {}
        large = await self._snapshots.distinct("session_id", {"audience": {"$type": "object"}})
        found: dict[str, str] = {}
        for start in range(0, len(large), PAGE):
            some = {"_id": {"$in": large[start : start + PAGE]}, "audience_changes.joined": user_id}
            async for row in self._sessions.find(some, KEPT):
                session = row["_id"]
                for number in Audiences.of_row(row).heard_by(user_id):
                    found[f"session:{session}" + (f":{number}" if number > 1 else "")] = session
        return found
