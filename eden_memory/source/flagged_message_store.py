"""Messages that another field mapping read, and messages that are missing from the application's collection."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.directory.own_sessions import BEGINS
from eden_memory.mongo.bson_ids import decode_id, encode_id
from eden_memory.names import Names
from eden_memory.schemas.documents import ForgottenMark, Message
from eden_memory.schemas.ids import encode as encode_text
from eden_memory.source.messages_store import source_errors

Row = dict[str, Any]
LOOKED_UP = 1_000
STORED: Row = {
    "deleted": False,
    "opted_out": {"$ne": True},
    "forgotten": {"$ne": True},
    "session_id": {"$not": {"$regex": f"^{encode_text(BEGINS)}"}},
}
"""Query for the application's messages that are kept."""


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
    for start in range(0, len(found), LOOKED_UP):
        part = found[start : start + LOOKED_UP]
        there = messages.find({"_id": {"$in": [decode_id(message.id) for message in part]}}, {"_id": 1})
        gone: Row = {"kind": "message", "target": {"$in": [message.id for message in part]}}
        marked = memory[names[ForgottenMark.COLLECTION]].find(gone, {"target": 1})
        known = {encode_id(row["_id"]) async for row in there} | {row["target"] async for row in marked}
        missing += [message for message in part if message.id not in known]
    return missing
