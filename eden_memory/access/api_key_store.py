"""API keys in `api_keys`: their hashes, what they may do, and when they were used last."""

from datetime import datetime
from typing import Any

from pymongo import ReadPreference, WriteConcern
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.mongo.documents import document_of, row_of
from eden_memory.names import Names
from eden_memory.schemas.documents import ApiKey

Row = dict[str, Any]


class MongoApiKeys:
    """Reads and writes the collections of one namespace."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        self._keys = database.get_collection(
            names[ApiKey.COLLECTION],
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("majority"),
            write_concern=WriteConcern("majority"),
        )

    async def find(self, digest: str) -> ApiKey | None:
        """The key with this SHA-256, revoked or not."""
        row = await self._keys.find_one({"_id": str(digest)})
        return None if row is None else document_of(ApiKey, row)

    async def all(self) -> list[ApiKey]:
        """Oldest first, revoked ones included."""
        rows = await self._keys.find({}).sort([("created_at", 1), ("_id", 1)]).to_list()
        return [document_of(ApiKey, row) for row in rows]

    async def any_valid(self) -> bool:
        """Whether there is a key that is not revoked."""
        return await self._keys.find_one({"revoked_at": None}, {"_id": 1}) is not None

    async def named(self, name: str) -> ApiKey | None:
        """The key of this name that is not revoked."""
        row = await self._keys.find_one({"name": str(name), "revoked_at": None})
        return None if row is None else document_of(ApiKey, row)

    async def insert(self, key: ApiKey) -> None:
        """Keep a new key."""
        await self._keys.insert_one(row_of(key))

    async def revoke(self, digest: str, at: datetime) -> bool:
        """From now on it opens nothing; False if it was revoked already."""
        result = await self._keys.update_one(
            {"_id": str(digest), "revoked_at": None}, {"$set": {"revoked_at": at}}
        )
        return result.modified_count == 1

    async def used(self, digest: str, at: datetime) -> None:
        """Note that it was used."""
        await self._keys.update_one({"_id": str(digest)}, {"$max": {"last_used_at": at}})
