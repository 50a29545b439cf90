"""Write requests to `memory_inbox`, and read and erase them as the tailer does.

Any application may write there (invariant request-after-messages).
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, cast

from bson import ObjectId
from bson.errors import InvalidId
from pymongo import AsyncMongoClient, DeleteOne
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.errors import EdenError, NotAnId, NotFound
from eden_memory.mongo.bson_ids import decode_id, encode_id
from eden_memory.mongo.changes import Document, SourceFailed, version_of
from eden_memory.mongo.given_ids import readings
from eden_memory.mongo.lenient_decoding import PLAIN, decode_documents
from eden_memory.settings import Settings
from eden_memory.source.messages_store import source_errors

Row = dict[str, Any]
MOST = 1_000
"""Documents that are read together at most."""
TYPED = ("s.", "i.", "u.", "o.", "l.")
ENDS = ("\n\n", "\n", ". ", " ")
"""Where a text is best cut, the best first."""


class MongoInbox:
    """The inbox collection of the application's database."""

    def __init__(self, client: AsyncMongoClient[dict[str, Any]], database: str, collection: str) -> None:
        self._client = client
        self._collection = client.get_database(database, codec_options=PLAIN).get_collection(collection)

    async def waiting(self, kind: str | None = None) -> AsyncGenerator[Sequence[Document], None]:
        """Yield the documents there, or those of a kind, oldest first, as many at once as the server sends."""
        wanted = {} if kind is None else {"kind": kind}
        with source_errors(f"reading {self._collection.full_name}"):
            async with self._collection.find_raw_batches(
                wanted, sort=[("_id", 1)], batch_size=MOST
            ) as cursor:
                async for batch in cursor:
                    yield decode_documents(cast(bytes, batch))

    async def oldest_ids(self, *, besides: str) -> tuple[list[Any], str]:
        """Return the ids of the first documents there that are not of a kind, and the version of now."""
        wanted, found = {"kind": {"$ne": besides}}, list[Document]()
        with source_errors(f"reading {self._collection.full_name}"):
            async with self._client.start_session(causal_consistency=True) as session:
                async for batch in self._collection.find_raw_batches(
                    wanted, {"_id": 1}, sort=[("_id", 1)], limit=MOST, session=session
                ):
                    found += decode_documents(cast(bytes, batch))
                now = session.operation_time
        if now is None:
            raise SourceFailed("the server gives no operation time: it is no replica set")
        return [document["_id"] for document in found], version_of(now.time, now.inc)

    async def erase(self, ids: Iterable[Any]) -> None:
        """Remove carried documents."""
        removals = [DeleteOne({"_id": identity}) for identity in ids]
        with source_errors(f"erasing from {self._collection.full_name}"):
            await self._collection.bulk_write(removals, ordered=False)


async def ask(inbox: AsyncCollection[Row], document: Row) -> ObjectId:
    """Write a request; returns its id, which every record that follows from it names."""
    result = await inbox.insert_one(document)
    inserted: ObjectId = result.inserted_id
    return inserted


async def session_of(
    database: AsyncDatabase[Row],
    messages: str,
    path: str,
    text: str,
    *,
    inbox: AsyncCollection[Row] | None = None,
    recorded: AsyncCollection[Row] | None = None,
) -> Any:
    """Return the session that a text names: typed (`o.65f…`), or as a message or an added text names it."""

    async def added(session: Any) -> bool:
        """Tell whether added texts name the session: in the inbox, or in memory once the tailer has carried them."""
        if inbox is not None and await inbox.find_one({"session_id": session}, {"_id": 1}):
            return True
        named = {"session_id": encode_id(session)}
        return recorded is not None and await recorded.find_one(named, {"_id": 1}) is not None

    return await _named_by_a_message(database, messages, path, text, "names the session", added)


async def named_session(
    source: AsyncDatabase[Row], memory: AsyncDatabase[Row], settings: Settings, text: str
) -> Any:
    """Return the session that a text names, also one that only added texts are of."""
    fields, names = settings.messages, settings.names
    inbox, recorded = source[names["inbox"]], memory[names["messages"]]
    return await session_of(
        source, fields.collection, fields.session_id, text, inbox=inbox, recorded=recorded
    )


async def user_of(database: AsyncDatabase[Row], messages: str, path: str, text: str) -> Any:
    """Return the user that a text names, as :func:`session_of`."""
    return await _named_by_a_message(database, messages, path, text, "is of the user")


async def message_of(database: AsyncDatabase[Row], messages: str, text: str) -> Any:
    """Return the message that a text names; a message that is deleted already has to be given typed."""
    return await _named_by_a_message(database, messages, "_id", text, "has the id")


async def _named_by_a_message(
    database: AsyncDatabase[Row],
    messages: str,
    path: str,
    text: str,
    what: str,
    elsewhere: Callable[[Any], Awaitable[bool]] | None = None,
) -> Any:
    if not text:
        raise NotAnId("the id is empty", "Give s.TEXT, i.NUMBER, u.UUID, o.OBJECTID, or plain text.")
    if text.startswith(TYPED):
        try:
            return decode_id(text)
        except (ValueError, InvalidId):
            pass
    found = [
        reading
        for reading in readings(text)
        if await database[messages].find_one({path: reading}, {"_id": 1})
        or (elsewhere is not None and await elsewhere(reading))
    ]
    if len(found) > 1:
        raise EdenError(
            f"{text!r} is the id of several, of different types",
            f"Say which is meant: {' or '.join(map(encode_id, found))}.",
        )
    if not found:
        raise NotFound(
            f"no message in the collection {messages} {what} {text!r}",
            "Give its typed id to ask all the same: s.TEXT, i.NUMBER, u.UUID or o.OBJECTID.",
        )
    return found[0]


def parts_of(text: str, limit: int) -> Iterator[str]:
    """Yield parts of at most `limit` characters, none of them blank; only blanks between them are lost."""
    rest = text.strip()
    while len(rest) > limit:
        at = _cut(rest, limit)
        yield rest[:at].strip()
        rest = rest[at:].strip()
    if rest:
        yield rest


def _cut(text: str, limit: int) -> int:
    """Return the place behind the last good end in the second half of what fits; else the limit."""
    for end in ENDS:
        found = text.rfind(end, limit // 2, limit)
        if found > 0:
            return found + len(end)
    return limit
