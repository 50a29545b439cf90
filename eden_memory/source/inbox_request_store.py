"""Asking through `memory_inbox`, as any application may: the tailer carries it after everything written before."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from bson import ObjectId
from bson.errors import InvalidId
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.errors import EdenError, NotFound
from eden_memory.mongo.bson_ids import decode_id, encode_id

Row = dict[str, Any]
TYPED = ("s.", "i.", "u.", "o.")


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
    """The session that a person means: typed (`o.65f…`), or the form of it that a message or an added text names."""

    async def added(session: Any) -> bool:
        """Added texts wait in the inbox, and are known to memory alone once the tailer has carried them."""
        if inbox is not None and await inbox.find_one({"session_id": session}, {"_id": 1}):
            return True
        named = {"session_id": encode_id(session)}
        return recorded is not None and await recorded.find_one(named, {"_id": 1}) is not None

    return await _named_by_a_message(database, messages, path, text, "names the session", added)


async def user_of(database: AsyncDatabase[Row], messages: str, path: str, text: str) -> Any:
    """The user that a person means, as :func:`session_of`."""
    return await _named_by_a_message(database, messages, path, text, "is of the user")


async def message_of(database: AsyncDatabase[Row], messages: str, text: str) -> Any:
    """The message that a person means; one that is deleted already has to be given typed."""
    return await _named_by_a_message(database, messages, "_id", text, "has the id")


async def _named_by_a_message(
    database: AsyncDatabase[Row],
    messages: str,
    path: str,
    text: str,
    what: str,
    elsewhere: Callable[[Any], Awaitable[bool]] | None = None,
) -> Any:
    if text.startswith(TYPED):
        try:
            return decode_id(text)
        except (ValueError, InvalidId):
            pass
    found = [
        one
        for one in _readings(text)
        if await database[messages].find_one({path: one}, {"_id": 1})
        or (elsewhere is not None and await elsewhere(one))
    ]
    if len(found) > 1:
        raise EdenError(
            f"{text!r} is the id of several, of different types",
            f"Say which is meant: {' or '.join(map(encode_id, found))}.",
        )
    if not found:
        raise NotFound(
            f"no message in {messages} {what} {text!r}",
            "Give its typed id to ask all the same: s.TEXT, i.NUMBER, u.UUID or o.OBJECTID.",
        )
    return found[0]


def _integer(text: str) -> Any:
    return decode_id(f"i.{text}")


def _readings(text: str) -> list[Any]:
    """What a text may stand for: text, and the types that it can be read as."""
    readings: list[Any] = [text]
    for read in (_integer, UUID, ObjectId):
        try:
            readings.append(read(text))
        except (ValueError, InvalidId):
            continue
    return readings
