"""Snapshots of scopes: all that a context, a prompt or a consolidation needs of one, in one document."""

from collections.abc import Collection, Iterable
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.memory.hidden_store import MongoHidden
from eden_memory.mongo.documents import document_of
from eden_memory.mongo.shared_reads import SharedReads
from eden_memory.names import Names
from eden_memory.schemas.documents import Snapshot

Row = dict[str, Any]


class MongoSnapshots:
    """Reads the collection `snapshots`; look-ups of the same moment share a query."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        name = names[Snapshot.COLLECTION]
        self._snapshots = database.get_collection(name, read_concern=ReadConcern("majority"))
        self._reads = SharedReads(self._read)
        self._hidden = MongoHidden(database, names)

    async def snapshots(self, scope_keys: Iterable[str]) -> dict[str, Snapshot]:
        """Return the snapshots that exist, in one query."""
        return await self._reads.get(scope_keys)

    async def without_users(self, scope_keys: Iterable[str], private: Collection[str]) -> dict[str, Snapshot]:
        """Return the same, the `private` ones without memory that users' messages led to."""
        return await self._hidden.taken_out(await self.snapshots(scope_keys), private)

    async def _read(self, keys: list[str]) -> dict[str, Snapshot]:
        found = self._snapshots.find({"_id": {"$in": keys}})
        return {row["_id"]: document_of(Snapshot, row) async for row in found}
