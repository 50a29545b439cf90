"""What was read by another field mapping than the one that reads now: noted, counted."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import PyMongoError

from eden_memory.directory.own_sessions import BEGINS
from eden_memory.error_text import describe
from eden_memory.mongo.changes import SourceFailed
from eden_memory.names import Names
from eden_memory.schemas.ids import encode

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Misread:
    """`stored`: messages that another mapping read; `formed`: those corrected since, but formed before that."""

    mapping: str
    """The version of the mapping that reads now."""
    stored: int = 0
    formed: int = 0

    def lines(self) -> list[str]:
        """For people: what there is, and what to do."""
        said: list[str] = []
        if self.stored:
            said.append(
                f"{self.stored:,} stored messages were read by another field mapping than the one set now "
                f"({self.mapping}): `eden source reread` reads them again"
            )
        if self.formed:
            said.append(
                f"memory was formed from {self.formed:,} messages that an earlier field mapping read wrong: "
                "`eden reform corrected` forms it anew (it estimates the cost and asks first)"
            )
        return said


async def misread(database: AsyncDatabase[Row], names: Names, source: str, mapping: str) -> Misread:
    """Count what `mapping` did not read; nothing is counted while all that is there was read with it."""
    position = await database[names["positions"]].find_one({"_id": source}) or {}
    messages = database[names["messages"]]
    formed = await messages.count_documents({"misread": True, "forgotten": {"$ne": True}})
    if not position.get("reread_due") and position.get("mapping") in (None, mapping):
        return Misread(mapping, formed=formed)
    return Misread(mapping, await messages.count_documents(_others(position, mapping)), formed)


def _others(position: Mapping[str, Any], mapping: str) -> Row:
    """Messages of the application that are kept and that another mapping read."""
    same = [mapping, *([None] if position.get("first_mapping") == mapping else [])]
    return {
        "mapping": {"$nin": same},
        "deleted": False,
        "opted_out": {"$ne": True},
        "forgotten": {"$ne": True},
        "session_id": {"$not": {"$regex": f"^{encode(BEGINS)}"}},
    }


def reading_alike(messages: AsyncCollection[Row], mapping: str) -> Callable[[Sequence[str]], Awaitable[None]]:
    """Return what notes that the mapping reads messages as they are recorded."""

    async def note(message_ids: Sequence[str]) -> None:
        others = {"_id": {"$in": list(message_ids)}, "mapping": {"$ne": mapping}}
        try:
            await messages.update_many(others, {"$set": {"mapping": mapping}})
        except PyMongoError as error:
            raise SourceFailed(f"noting what was read again: {describe(error)}") from error

    return note
