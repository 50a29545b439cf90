"""Write requests to `memory_inbox`, also to forget what a person names; read and erase them as the tailer does.

Any application may write there (invariant request-after-messages).
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, cast

from bson import ObjectId
from bson.errors import InvalidId
from pymongo import AsyncMongoClient, DeleteOne
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError

from eden_memory.errors import EdenError, NotAnId, NotFound
from eden_memory.mongo.changes import Document, SourceFailed, version_of
from eden_memory.mongo.ids import decode_id, encode_id, readings
from eden_memory.mongo.lenient_decoding import PLAIN, decode_documents
from eden_memory.mongo.refusals import only_duplicates
from eden_memory.schemas.documents import Fact, InboxForget, Message, Reflection, StoredBlob
from eden_memory.settings import Settings
from eden_memory.source.messages_store import missing_messages, source_errors

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


async def ask_all(inbox: AsyncCollection[Row], documents: Sequence[Row]) -> None:
    """Write requests that have ids; those that wait there already stay as they are."""
    try:
        await inbox.insert_many(documents, ordered=False)
    except BulkWriteError as error:
        only_duplicates(error)


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


ForgetKind = Literal["message", "session", "user", "fact", "reflection", "blob"]
STORED = {"fact": Fact.COLLECTION, "reflection": Reflection.COLLECTION, "blob": StoredBlob.COLLECTION}
Database = AsyncDatabase[dict[str, Any]]


class ForgetRequests:
    """`source`: the application's database, with the inbox; `memory`: that of memory; `by`: who asks."""

    def __init__(self, source: Database, memory: Database, settings: Settings, by: str | None) -> None:
        self._source, self._memory, self._settings = source, memory, settings
        self._asked = {"kind": "forget", "asked_by": by}
        self._inbox = source[settings.names[InboxForget.COLLECTION]]

    async def ask(self, kind: ForgetKind, name: str) -> str:
        """Request that it is forgotten, and return the typed id of the request.

        Raises NotFound if there is none: a typing error would look like success.
        """
        target = await self.target(kind, name)
        asked = await self._inbox.insert_one({**self._asked, "what": kind, "target": target})
        return encode_id(asked.inserted_id)

    async def missing(self) -> list[Message]:
        """Return the messages whose document was missing after a lost position, and still is."""
        messages = self._source[self._settings.messages.collection]
        return await missing_messages(self._memory, self._settings.names, messages)

    async def ask_for(self, messages: list[Message]) -> None:
        """Request that these messages are forgotten."""
        asked = {**self._asked, "what": "message"}
        await self._inbox.insert_many([{**asked, "target": decode_id(message.id)} for message in messages])

    async def target(self, kind: ForgetKind, name: str) -> Any:
        """Return the id that a text names, as the application has it; raises NotFound if there is none."""
        source, paths = self._source, self._settings.messages
        match kind:
            case "session":
                return await named_session(source, self._memory, self._settings, name)
            case "user":
                return await user_of(source, paths.collection, paths.user_id, name)
            case "message":
                return await message_of(source, paths.collection, name)
            case "fact" | "reflection" | "blob":
                return await self._stored(kind, name)

    async def _stored(self, kind: str, name: str) -> str:
        documents = self._memory[self._settings.names[STORED[kind]]]
        if await documents.find_one({"_id": name}, {"_id": 1}) is None:
            raise NotFound(
                f"there is no {kind} {name!r}", f"Or no more; `eden {kind}s` lists those that a user may see."
            )
        return name
