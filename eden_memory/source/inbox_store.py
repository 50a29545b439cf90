"""`memory_inbox`: what applications and the API ask for; the tailer carries it and erases it."""

from collections.abc import Iterable, Sequence
from typing import Any

from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError

from eden_memory.error_text import describe
from eden_memory.mongo.change_stream import PLAIN
from eden_memory.mongo.changes import Document, SourceFailed


class MongoInbox:
    """The inbox collection of the application's database."""

    def __init__(self, client: AsyncMongoClient[dict[str, Any]], database: str, collection: str) -> None:
        self._collection = client.get_database(database, codec_options=PLAIN).get_collection(collection)

    async def waiting(self) -> Sequence[Document]:
        """All documents there, oldest first."""
        try:
            return await self._collection.find(sort=[("_id", 1)]).to_list()
        except PyMongoError as error:
            raise SourceFailed(f"reading {self._collection.full_name}: {describe(error)}") from error

    async def erase(self, ids: Iterable[Any]) -> None:
        """Remove carried documents."""
        try:
            await self._collection.delete_many({"_id": {"$in": list(ids)}})
        except PyMongoError as error:
            raise SourceFailed(f"erasing from {self._collection.full_name}: {describe(error)}") from error
