"""Read the whole messages collection in (created_at, _id) order, resumable page by page."""

from collections.abc import AsyncGenerator, Generator, Iterable, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, cast

from bson import ObjectId, Timestamp
from pymongo import ASCENDING, AsyncMongoClient
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern

from eden_memory.error_text import describe
from eden_memory.logs import LibraryLogger
from eden_memory.mongo.bson_ids import decode_id, encode_id
from eden_memory.mongo.change_stream import PLAIN
from eden_memory.mongo.changes import Document, DocumentPage, SourceFailed, version_of

log = LibraryLogger("eden.tailer")
LAST_SECOND = 2**32 - 1
"""Of an ObjectId."""


@contextmanager
def source_errors(doing: str) -> Generator[None]:
    """Raise an error of MongoDB's as SourceFailed, with what failed."""
    try:
        yield
    except PyMongoError as error:
        raise SourceFailed(f"{doing}: {describe(error)}") from error


def reading_order(created_at: str) -> list[tuple[str, int]]:
    """Return the keys of the index in whose order a messages collection is read."""
    return [(name, ASCENDING) for name in dict.fromkeys((created_at, "_id"))]


class CollectionReader:
    """Reads pages of `fields` of a collection; `created_at` is the path that orders it, `since` the oldest wanted.

    `session` is the path of a message's session.
    """

    def __init__(
        self,
        client: AsyncMongoClient[dict[str, Any]],
        database: str,
        collection: str,
        fields: Iterable[str],
        created_at: str,
        *,
        session: str = "session_id",
        since: datetime | None = None,
        page: int = 4_000,
    ) -> None:
        self._client = client
        self._collection = client.get_database(database, codec_options=PLAIN).get_collection(
            collection, read_concern=ReadConcern("majority")
        )
        self._project = dict.fromkeys(fields, 1)
        self._created_at, self._page, self._session = created_at, page, session
        self._wanted: dict[str, Any] = {} if since is None else {created_at: {"$gte": self._oldest(since)}}

    @property
    def index(self) -> list[tuple[str, int]]:
        """The index that makes reading in order cheap; where an ObjectId is the time, the one of `_id`."""
        return reading_order(self._created_at)

    async def count(self) -> int:
        """Return about how many documents there are; exact when only some are wanted."""
        with source_errors(f"counting {self._collection.full_name}"):
            if self._wanted:
                return await self._collection.count_documents(self._wanted)
            return await self._collection.estimated_document_count()

    async def empty(self) -> bool:
        """Tell whether there is no document, or no collection."""
        with source_errors(f"reading {self._collection.full_name}"):
            return await self._collection.find_one({}, {"_id": 1}) is None

    async def pages(self, after: Any, session: Any = None) -> AsyncGenerator[DocumentPage, None]:
        """Yield pages after `after` (a page's `last`; None: from the first document on), of one session or of all."""
        with source_errors(f"reading {self._collection.full_name}"):
            if session is not None:
                async for page in self._sorted(after, {**self._wanted, self._session: session}):
                    yield page
            elif await self._indexed():
                async for page in self._by_index(after):
                    yield page
            else:
                name = self._collection.full_name
                log.warning(
                    "backfill sorts the whole collection", collection=name, wants_index=dict(self.index)
                )
                async for page in self._sorted(after, self._wanted):
                    yield page

    async def _indexed(self) -> bool:
        indexes = await self._collection.index_information()
        return any(
            [(name, int(order)) for name, order in index["key"]] == self.index
            and "partialFilterExpression" not in index
            and not index.get("sparse")
            for index in indexes.values()
        )

    async def _by_index(self, after: Any) -> AsyncGenerator[DocumentPage, None]:
        """Yield pages, each read by its own query, after its own cluster time."""
        while True:
            async with self._client.start_session(causal_consistency=True) as session:
                moment = await self._cluster_time(session)
                cursor = self._collection.find(
                    self._wanted, self._project, hint=self.index, limit=self._page + 1, session=session
                ).batch_size(self._page + 1)
                if after is not None:
                    place = dict(zip((self._created_at, "_id"), after, strict=True))
                    cursor = cursor.min(list(place.items()))
                found = await cursor.to_list()
            documents = [document for document in found if after is None or document["_id"] != after[1]]
            if documents:
                after = self._place(documents[-1])
                yield self._paged(documents, moment)
            if len(found) <= self._page:
                return

    async def _sorted(self, after: Any, wanted: dict[str, Any]) -> AsyncGenerator[DocumentPage, None]:
        """Yield pages of one sorted query: the cluster time before it counts for all of them."""
        wanted = wanted if after is None else {"$and": [wanted, self._beyond(after)]}
        async with self._client.start_session(causal_consistency=True) as session:
            moment = await self._cluster_time(session)
            cursor = self._collection.find(wanted, self._project, sort=self.index, session=session)
            documents: list[Document] = []
            async for document in cursor.allow_disk_use(True).batch_size(self._page):
                documents.append(document)
                if len(documents) == self._page:
                    yield self._paged(documents, moment)
                    documents = []
            if documents:
                yield self._paged(documents, moment)

    def _beyond(self, after: Any) -> dict[str, Any]:
        created, identity = {"$literal": after[0]}, {"$literal": after[1]}
        field = {"$ifNull": [f"${self._created_at}", None]}
        return {
            "$expr": {
                "$or": [
                    {"$gt": [field, created]},
                    {"$and": [{"$eq": [field, created]}, {"$gt": ["$_id", identity]}]},
                ]
            }
        }

    async def _cluster_time(self, session: AsyncClientSession) -> Timestamp:
        """Return the server's time; later reads of the session see at least everything up to it."""
        await self._client.admin.command("ping", session=session)
        moment = session.operation_time
        if moment is None:
            raise SourceFailed("the server gives no operation time: it is no replica set")
        return moment

    def _paged(self, documents: Sequence[Document], moment: Timestamp) -> DocumentPage:
        version = version_of(moment.time, moment.inc)
        return DocumentPage(
            documents, self._place(documents[-1]), version, datetime.fromtimestamp(moment.time, UTC)
        )

    def _oldest(self, since: datetime) -> datetime | ObjectId:
        """Return the least value of the time's field that is wanted."""
        if self._created_at != "_id":
            return since
        seconds = min(max(int(since.timestamp()), 0), LAST_SECOND)
        return ObjectId(f"{seconds:08x}{'0' * 16}")

    def _place(self, document: Document) -> list[Any]:
        value: Any = document
        for name in self._created_at.split("."):
            value = cast(Document, value).get(name) if isinstance(value, dict) else None
        return [value, document["_id"]]

    async def originals(self, ids: Sequence[Any]) -> Sequence[Document]:
        """Return whole documents by id; those that are gone are left out."""
        with source_errors(f"reading {self._collection.full_name}"):
            return await self._collection.find({"_id": {"$in": list(ids)}}).to_list()

    async def existing(self, encoded_ids: Sequence[str]) -> set[str]:
        """Return those of the typed ids that still have a document."""
        ids = [decode_id(encoded) for encoded in encoded_ids]
        with source_errors(f"reading {self._collection.full_name}"):
            found = await self._collection.find({"_id": {"$in": ids}}, {"_id": 1}).to_list()
        return {encode_id(document["_id"]) for document in found}
