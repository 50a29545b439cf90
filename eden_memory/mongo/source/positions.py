"""A tailer's position in MongoDB, moved by compare-and-set under the lease's epoch."""

from typing import Any

from pymongo import ReturnDocument
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import DuplicateKeyError, PyMongoError

from eden_memory.ports import LeaseLost, Position, SourceFailed

FIELDS = ("token", "version", "phase", "page", "read")


class MongoPositions:
    """The position of one source, in the document `source` of a collection."""

    def __init__(self, positions: AsyncCollection[dict[str, Any]], source: str) -> None:
        self._positions, self._source = positions, source

    async def claim(self, epoch: int) -> Position | None:
        """Shut out holders of older epochs, then read; None before the first start."""
        stored = await self._set(epoch, {})
        return Position(**{name: stored[name] for name in FIELDS}) if "token" in stored else None

    async def save(self, epoch: int, position: Position) -> None:
        """Store; LeaseLost if a newer holder has claimed it."""
        await self._set(epoch, {name: getattr(position, name) for name in FIELDS})

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
            raise SourceFailed(f"position of {self._source}: {error}") from error
        assert stored is not None
        return stored
