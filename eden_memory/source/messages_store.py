"""Read the messages collection in (created_at, _id) order; find messages that are misread or missing."""

from collections.abc import AsyncGenerator, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from bson import ObjectId, Timestamp, decode, encode  # pyright: ignore[reportUnknownVariableType]
from bson.errors import InvalidId
from pymongo import ASCENDING, AsyncMongoClient
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern

from eden_memory.directory.listed_messages import MessageList, place_in_document
from eden_memory.directory.listed_store import ListStore
from eden_memory.directory.participants import BEGINS
from eden_memory.directory.session_document_store import SessionDocuments
from eden_memory.errors import describe
from eden_memory.logs import LibraryLogger
from eden_memory.mongo.changes import Document, DocumentPage, SourceFailed, Unreadable, version_of
from eden_memory.mongo.document_fields import (
    EPOCH_ENDS,
    EPOCH_UNITS,
    made_at,
    marked_if,
    moment_of,
    without_nested,
)
from eden_memory.mongo.ids import decode_id, encode_id
from eden_memory.mongo.lenient_decoding import LENIENT, PLAIN, decode_documents
from eden_memory.names import Names
from eden_memory.redaction import redactor_of
from eden_memory.schemas.documents import ForgottenMark, Message
from eden_memory.schemas.envelope import rfc3339
from eden_memory.schemas.ids import encode as encode_text
from eden_memory.settings import Settings
from eden_memory.source.message_mapping import FieldPaths, MessageMapping

log = LibraryLogger("eden.tailer")


INBOX = "inbox"


def message_paths(settings: Settings) -> FieldPaths:
    """Where a message's fields are in the application's documents."""
    fields = settings.messages
    named = (fields.session_id, fields.role, fields.user_id, fields.created_at, *fields.contents)
    if fields.list is not None:
        named = tuple(map(place_in_document, named))
    session_id, role, user_id, created_at, content, *otherwise = named
    return FieldPaths(session_id, role, content, user_id, created_at, tuple(otherwise))


def message_list(settings: Settings, key: bytes) -> MessageList | None:
    """How the messages of a document are told apart, where a document lists them; `key` makes digests."""
    return None if settings.messages.list is None else MessageList(settings.messages, key)


def message_mapping(settings: Settings) -> MessageMapping:
    """The application's messages → records."""
    return MessageMapping(
        message_paths(settings),
        settings.source_name,
        encode_id,
        roles=settings.messages.roles,
        text_limit=settings.tailer.text_limit,
        redactor=redactor_of(settings),
        deleted=settings.messages.unread,
    )


def inbox_name(settings: Settings) -> str:
    """The collection that applications and API write their requests to."""
    return settings.names[INBOX]


LAST_SECOND = 2**32 - 1
"""Of an ObjectId."""
REPLACEMENT = "\ufffd"
"""Stands in decoded text for what was not UTF-8."""
PAGE_BYTES = 16_000_000
"""Bytes of documents after which a page ends before it has all of its documents."""


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
        self._project = dict.fromkeys(without_nested(list(fields)), 1)
        self._created_at, self._page, self._session = created_at, page, session
        self._since = None if since is None else rfc3339(since)
        self._wanted: dict[str, Any] = {} if since is None else {"$nor": _earlier(created_at, since)}

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

    async def pages(
        self, after: bytes | None, session: Any = None, documents: Sequence[Any] | None = None
    ) -> AsyncGenerator[DocumentPage, None]:
        """Yield pages after `after` (a page's `last`; None: from the first document on): of one session, of some
        documents by their `_id`s, or of all.
        """
        with source_errors(f"reading {self._collection.full_name}"):
            if documents is not None:
                async for page in self._sorted(
                    after, {"$and": [self._wanted, {"_id": {"$in": list(documents)}}]}
                ):
                    yield page
            elif session is not None:
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

    async def _by_index(self, after: bytes | None) -> AsyncGenerator[DocumentPage, None]:
        """Yield pages, each read by its own query, after its own cluster time.

        A page ends at a document that has a place, or the next page could not begin there; it gets longer until it
        holds one.
        """
        longer, more = 1, True
        while more:
            async with self._client.start_session(causal_consistency=True) as session:
                moment = await self._cluster_time(session)
                found, more = await self._from(after, longer, session)
            documents = found[1:] if after is not None and found and self._place(found[0]) == after else found
            while more and documents and not self._has_place(documents[-1]):
                documents.pop()
            if documents:
                longer, after = 1, self._place(documents[-1])
                yield self._paged(documents, moment)
            else:
                longer *= 2

    async def _from(
        self, after: bytes | None, longer: int, session: AsyncClientSession
    ) -> tuple[list[Document], bool]:
        """Return documents from a place on, that of the place too; and whether there may be more."""
        limit = self._page * longer + 1
        cursor = self._collection.find_raw_batches(
            self._wanted, self._project, hint=self.index, limit=limit, batch_size=limit, session=session
        )
        if after is not None:
            cursor.min(list(zip((self._created_at, "_id"), _values(after), strict=True)))
        found, size = list[Document](), 0
        async with cursor:
            async for batch in cursor:
                found += decode_documents(cast(bytes, batch))
                size += len(cast(bytes, batch))
                if size >= PAGE_BYTES * longer:
                    return found, True
        return found, len(found) == limit

    async def _sorted(
        self, after: bytes | None, wanted: dict[str, Any]
    ) -> AsyncGenerator[DocumentPage, None]:
        """Yield pages of one sorted query: the cluster time before it counts for all of them."""
        wanted = wanted if after is None else {"$and": [wanted, self._beyond(after)]}
        async with self._client.start_session(causal_consistency=True) as session:
            moment = await self._cluster_time(session)
            cursor = self._collection.find_raw_batches(
                wanted, self._project, sort=self.index, session=session, batch_size=self._page
            )
            documents: list[Document] = []
            async for batch in cursor.allow_disk_use(True):
                documents += decode_documents(cast(bytes, batch))
                if documents and self._has_place(documents[-1]):
                    yield self._paged(documents, moment)
                    documents = []
            if documents:
                yield self._paged(documents, moment)

    def _beyond(self, after: bytes) -> dict[str, Any]:
        created, identity = ({"$literal": value} for value in _values(after))
        field = {"$ifNull": [f"${self._created_at}", None]}
        return {
            "$expr": {
                "$or": [
                    {"$isArray": [field]},  # sorted by the least of its values, wherever that is
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
        wanted = documents if self._since is None else list(filter(self._is_wanted, documents))
        return DocumentPage(
            wanted, self._place(documents[-1]), version, datetime.fromtimestamp(moment.time, UTC)
        )

    def _is_wanted(self, document: Document) -> bool:
        """Tell whether a document is as new as is wanted, whatever form its time has; one without a time is."""
        made = moment_of(self._time(document)) or made_at(document["_id"])
        return made is None or made >= (self._since or "")

    def _place(self, document: Document) -> bytes:
        """Return where a document stands in the order, in a form that any store can keep."""
        return encode({"place": [self._time(document), document["_id"]]}, codec_options=PLAIN)

    def _has_place(self, document: Document) -> bool:
        """Tell whether its place is known exactly: text that is not UTF-8 is changed, a list of times has several."""
        time, identity = self._time(document), document["_id"]
        changed = any(isinstance(value, str) and REPLACEMENT in value for value in (time, identity))
        return not (changed or isinstance(document, Unreadable) or isinstance(time, list))

    def _time(self, document: Document) -> Any:
        """Return what orders the document; a list that stands on the way to it as it is."""
        value: Any = document
        for name in self._created_at.split("."):
            if not isinstance(value, list):
                value = cast(Document, value).get(name) if isinstance(value, dict) else None
        return cast(Any, value)

    async def existing(self, encoded_ids: Sequence[str]) -> set[str]:
        """Return those of the typed ids that still have a document; what is no typed id has none."""
        ids = [value for value in map(_decoded, encoded_ids) if value is not None]
        with source_errors(f"reading {self._collection.full_name}"):
            found = await self._collection.find({"_id": {"$in": ids}}, {"_id": 1}).to_list()
        return {encode_id(document["_id"]) for document in found}


def _earlier(path: str, since: datetime) -> list[dict[str, Any]]:
    """Return queries that find what is older by each type of time that MongoDB can compare; text it cannot."""
    second = min(max(int(since.timestamp()), 0), LAST_SECOND)
    typed = (since, Timestamp(second, 0), ObjectId(f"{second:08x}{'0' * 16}"))
    numbers = list[dict[str, Any]]()
    for parts in EPOCH_UNITS.values():
        least = -EPOCH_ENDS if not numbers else EPOCH_ENDS * parts // 1000
        numbers.append({"$gte": least, "$lt": since.timestamp() * parts})
    return [*({path: {"$lt": value}} for value in typed), *({path: {**each}} for each in numbers)]


def _decoded(encoded: str) -> Any:
    try:
        return decode_id(encoded)
    except (ValueError, InvalidId):
        return None


def _values(place: bytes) -> list[Any]:
    """Return the time and the `_id` of a place."""
    values: list[Any] = decode(place, LENIENT)["place"]
    return values


class ExcludedSessions:
    """Finds the sessions whose documents keep their messages out of memory."""

    def __init__(self, sessions: SessionDocuments) -> None:
        self._sessions, self._is_marked = sessions, marked_if(sessions.paths.exclude)

    async def among(self, session_ids: Iterable[str]) -> set[str]:
        """Return those of the sessions that are excluded, or whose document cannot be read; SourceFailed."""
        with source_errors("looking for excluded sessions"):
            rows = await self._sessions.by_id(session_ids)
        return {name for name, row in rows.items() if isinstance(row, Unreadable) or self._is_marked(row)}


Row = dict[str, Any]
LOOKED_UP = 1_000
STORED: Row = {
    "deleted": False,
    "alias_of": None,
    "opted_out": {"$ne": True},
    "forgotten": {"$ne": True},
    "session_id": {"$not": {"$regex": f"^{encode_text(BEGINS)}"}},
}
"""Query for the application's messages that are kept, each under its first id."""


@dataclass(frozen=True, slots=True)
class Misread:
    """`stored`: messages that another mapping read; `formed`: those corrected since, but formed before that."""

    mapping: str
    """The version of the mapping that reads now."""
    stored: int = 0
    formed: int = 0

    def lines(self) -> list[str]:
        """Say what there is and what to do, a line each."""
        lines: list[str] = []
        if self.stored:
            lines.append(
                f"{self.stored:,} stored messages were read by another field mapping than the one set now "
                f"({self.mapping}): `eden source reread` reads them again"
            )
        if self.formed:
            lines.append(
                f"memory was formed from {self.formed:,} messages that an earlier field mapping read wrong: "
                "`eden reform corrected` forms it anew (it estimates the cost and asks first)"
            )
        return lines


class MappingVersions:
    """Which field mapping read each message of one source; `mapping` is the version that reads now."""

    def __init__(self, database: AsyncDatabase[Row], names: Names, source: str, mapping: str) -> None:
        self._messages, self._positions = database[names["messages"]], database[names["positions"]]
        self._source, self._mapping = source, mapping

    async def misread(self) -> Misread:
        """Count the messages that another mapping read; count nothing if all of them were read with this one."""
        position = await self._positions.find_one({"_id": self._source}) or {}
        formed = await self._messages.count_documents({"misread": True, "forgotten": {"$ne": True}})
        if not position.get("reread_due") and position.get("mapping") in (None, self._mapping):
            return Misread(self._mapping, formed=formed)
        stored = await self._messages.count_documents({**STORED, "mapping": {"$ne": self._mapping}})
        return Misread(self._mapping, stored, formed)

    async def warnings(self) -> list[str]:
        """Return the lines of `misread`; SourceFailed where MongoDB does not answer."""
        with source_errors("counting what was read by another mapping"):
            return (await self.misread()).lines()

    async def note(self, message_ids: Sequence[str]) -> None:
        """Note that the mapping reads these messages as they are recorded; SourceFailed."""
        others = {"_id": {"$in": list(message_ids)}, "mapping": {"$ne": self._mapping}}
        with source_errors("noting what was read again"):
            await self._messages.update_many(others, {"$set": {"mapping": self._mapping}})


async def count_recorded(messages: AsyncCollection[Row]) -> int:
    """Count the messages of a collection that are kept and that no merge has missed; added texts are not."""
    return await messages.count_documents({**STORED, "missing": {"$ne": True}, "mapping": {"$ne": None}})


async def missing_messages(
    memory: AsyncDatabase[Row], names: Names, messages: AsyncCollection[Row]
) -> list[Message]:
    """Return the messages, without texts, that a merge noted as missing, still are, and are not forgotten."""
    query: Row = {"missing": True, "deleted": False}
    rows = memory[names[Message.COLLECTION]].find(query, {"text": 0}, sort=[("_id", 1)])
    found = [Message.model_validate(row, strict=False, extra="ignore") async for row in rows]
    missing: list[Message] = []
    lists = ListStore(memory, names)
    for start in range(0, len(found), LOOKED_UP):
        part = found[start : start + LOOKED_UP]
        ids = [message.id for message in part]
        there = messages.find({"_id": {"$in": list(map(decode_id, ids))}}, {"_id": 1})
        gone: Row = {"kind": "message", "target": {"$in": ids}}
        marked = memory[names[ForgottenMark.COLLECTION]].find(gone, {"target": 1})
        known = {encode_id(row["_id"]) async for row in there} | {row["target"] async for row in marked}
        known |= await lists.existing(messages, ids)
        missing += [message for message in part if message.id not in known]
    return missing
