"""Messages that memory knows and the application's collection has lost, as a merge noted them."""

from typing import Any

from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.mongo.bson_ids import decode_id, encode_id
from eden_memory.names import Names
from eden_memory.schemas.documents import ForgottenMark, Message

Row = dict[str, Any]
LOOKED_UP = 1_000


async def missing_messages(
    memory: AsyncDatabase[Row], names: Names, messages: AsyncCollection[Row]
) -> list[Message]:
    """The messages, by id and without their texts, that are noted as missing, still are, and are not forgotten."""
    query: Row = {"missing": True, "deleted": False}
    rows = memory[names[Message.COLLECTION]].find(query, {"text": 0}, sort=[("_id", 1)])
    found = [Message.model_validate(row, strict=False, extra="ignore") async for row in rows]
    missing: list[Message] = []
    for start in range(0, len(found), LOOKED_UP):
        part = found[start : start + LOOKED_UP]
        there = messages.find({"_id": {"$in": [decode_id(one.id) for one in part]}}, {"_id": 1})
        gone: Row = {"kind": "message", "target": {"$in": [one.id for one in part]}}
        marked = memory[names[ForgottenMark.COLLECTION]].find(gone, {"target": 1})
        known = {encode_id(row["_id"]) async for row in there} | {row["target"] async for row in marked}
        missing += [one for one in part if one.id not in known]
    return missing
