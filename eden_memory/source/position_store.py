"""A tailer's position in MongoDB, moved by compare-and-set under the lease's epoch."""

from collections.abc import Mapping, Sequence
from typing import Any

from pymongo import ReturnDocument
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import DuplicateKeyError, PyMongoError

from eden_memory.error_text import describe
from eden_memory.mongo.changes import SourceFailed
from eden_memory.mongo.leases import LeaseLost
from eden_memory.source.position import Position, RereadResult
from eden_memory.source.refusals import another_source, still_followed

FIELDS = ("token", "version", "phase", "page", "read")
PUBLISHED = "published"
Rows = AsyncCollection[dict[str, Any]]


async def other_sources(positions: Rows, source: str) -> Sequence[str]:
    """Names of sources besides this one whose messages are published."""
    query = {"_id": {"$ne": source}, "token": {"$exists": True}, PUBLISHED: {"$ne": False}}
    return [row["_id"] async for row in positions.find(query, {"_id": 1})]


class MongoPositions:
    """The position of one source, in the document `source` of a collection.

    `leases`: those of all sources. With `new_source` the source takes the place of every other one.
    """

    def __init__(
        self,
        positions: Rows,
        source: str,
        leases: Rows,
        *,
        mapping: str | None = None,
        new_source: bool = False,
    ) -> None:
        self._mapping = mapping
        self._positions, self._source, self._leases = positions, source, leases
        self._new_source = new_source

    async def claim(self, epoch: int) -> Position | None:
        """Shut out holders of older epochs, then read; None before the first start.

        EdenError when messages of another source are published already, and this one is not to take its place.
        """
        try:
            await self._be_the_only_one()
        except PyMongoError as error:
            raise self._failed(error) from error
        stored = await self._set(epoch, {})
        await self._note_mapping(epoch, stored)
        if "token" not in stored:
            return None
        published = stored.get(PUBLISHED, True)  # a position saved by an earlier version does not say
        return Position(**{name: stored[name] for name in FIELDS}, published=published)

    async def save(self, epoch: int, position: Position) -> None:
        """Store; LeaseLost if a newer holder has claimed it."""
        await self._set(epoch, {name: getattr(position, name) for name in (*FIELDS, PUBLISHED)})

    async def note_reread(self, epoch: int, result: RereadResult) -> None:
        """Store what came of reading messages again; LeaseLost as above."""
        values: dict[str, Any] = {"reread": {"id": result.id, **result.counts()}}
        if result.everything:
            values["reread_due"] = False
        await self._set(epoch, values)

    async def _note_mapping(self, epoch: int, stored: Mapping[str, Any]) -> None:
        """Note which mapping reads now, and that what another one read may be read again."""
        before = stored.get("mapping")
        if self._mapping is None or self._mapping == before:
            return
        values = {"mapping": self._mapping, "reread_due": before is not None}
        await self._set(epoch, values if before else {**values, "first_mapping": self._mapping})

    async def _be_the_only_one(self) -> None:
        others = await other_sources(self._positions, self._source)
        if not others:
            return
        if not self._new_source:
            raise another_source(self._source, others)
        led = {"_id": {"$in": others}, "$expr": {"$gt": ["$until", "$$NOW"]}}
        if await self._leases.find_one(led) is not None:
            raise still_followed(self._source, others)
        # Its own position goes too: what was published since it was saved is known to a merge only.
        await self._positions.delete_many({"_id": {"$in": [*others, self._source]}})

    async def _set(self, epoch: int, values: dict[str, Any]) -> dict[str, Any]:
        not_newer = {"_id": self._source, "epoch": {"$not": {"$gt": epoch}}}
        change = {"$set": {**values, "epoch": epoch}, "$currentDate": {"saved_at": True}}
        try:
            stored = await self._positions.find_one_and_update(
                not_newer, change, upsert=True, return_document=ReturnDocument.AFTER
            )
        except DuplicateKeyError:
            raise LeaseLost(f"position of {self._source}: a newer tailer has claimed it") from None
        except PyMongoError as error:
            raise self._failed(error) from error
        assert stored is not None
        return stored

    def _failed(self, error: PyMongoError) -> SourceFailed:
        return SourceFailed(f"position of {self._source}: {describe(error)}")
