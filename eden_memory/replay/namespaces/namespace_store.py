"""`<prefix>namespaces`, and the collections of a namespace: made, sized, dropped."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import CollectionInvalid, DuplicateKeyError, OperationFailure

from eden_memory.memory.memory_index_store import MEMORY_INDEXES
from eden_memory.mongo.validators import validator_of
from eden_memory.placement import collections_of
from eden_memory.replay.namespaces.namespace_names import KINDS
from eden_memory.schemas.documents import Namespace, Place

Row = dict[str, Any]
NOT_FOUND = 26


class MongoNamespaces:
    """The namespaces of one installation; `prefix` is the live one's."""

    def __init__(self, database: AsyncDatabase[Row], prefix: str) -> None:
        self._database, self._live = database, prefix
        self._namespaces = database[prefix + Namespace.COLLECTION]

    async def all(self) -> list[Namespace]:
        """By age."""
        return [_read(row) async for row in self._namespaces.find().sort("created_at", 1)]

    async def get(self, name: str) -> Namespace | None:
        """The namespace, or None."""
        row = await self._namespaces.find_one({"_id": name})
        return None if row is None else _read(row)

    async def made(self, new: Namespace) -> Namespace:
        """The namespace of this name: `new`, or what was there before. Its collections are made too."""
        if new.prefix != self._live + collections_of(new.id):
            raise ValueError(f"{new.prefix} is not the prefix of {new.id}")
        try:
            await self._namespaces.insert_one(new.stored())
        except DuplicateKeyError:
            found = await self.get(new.id)
            assert found is not None
            new = found
        if new.state != "dropped":
            await self._collections(new.prefix)
        return new

    async def reached(self, name: str, places: Sequence[Place], unreadable: int) -> None:
        """Note how far it is filled; `unreadable` records more."""
        written = {"places": [place.model_dump() for place in places]}
        await self._namespaces.update_one(
            {"_id": name}, {"$set": written, "$inc": {"unreadable": unreadable}}
        )

    async def caught_up(self, name: str, at: datetime) -> Mapping[str, int]:
        """Note that everything there was is in it; what it holds."""
        namespace = await self.get(name)
        assert namespace is not None
        counts = await self.counts(namespace.prefix)
        await self._namespaces.update_one(
            {"_id": name, "state": {"$ne": "dropped"}},
            {"$set": {"state": "caught_up", "caught_up_at": at, "counts": counts}},
        )
        return counts

    async def verified(self, name: str, at: datetime) -> None:
        """Note that it was found equal to live."""
        await self._namespaces.update_one(
            {"_id": name, "state": "caught_up"}, {"$set": {"state": "verified", "verified_at": at}}
        )

    async def counts(self, prefix: str) -> dict[str, int]:
        """Documents by collection."""
        kinds = [kind.COLLECTION for kind in KINDS]
        return {name: await self._database[prefix + name].count_documents({}) for name in kinds}

    async def sizes(self, prefix: str) -> dict[str, tuple[int, int]]:
        """By collection: documents, and bytes on the disk with indexes (collStats)."""
        found: dict[str, tuple[int, int]] = {}
        for kind in KINDS:
            try:
                stats = await self._database.command("collStats", prefix + kind.COLLECTION)
            except OperationFailure as error:
                if error.code != NOT_FOUND:
                    raise
                stats = {}
            size = int(stats.get("storageSize", 0)) + int(stats.get("totalIndexSize", 0))
            found[kind.COLLECTION] = int(stats.get("count", 0)), size
        return found

    async def remove(self, name: str) -> None:
        """The document of a namespace of which nothing is left."""
        await self._namespaces.delete_one({"_id": name, "state": "dropped"})

    async def _collections(self, prefix: str) -> None:
        for kind in KINDS:
            name = prefix + kind.COLLECTION
            with suppress(CollectionInvalid):  # made before
                await self._database.create_collection(name, validator=validator_of(kind))
            await self._database[name].create_indexes(list(MEMORY_INDEXES[kind.COLLECTION]))


def _read(row: Row) -> Namespace:
    return Namespace.model_validate(row, strict=False, extra="ignore")
