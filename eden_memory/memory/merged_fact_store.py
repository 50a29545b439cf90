"""Facts that earlier versions merged: they keep no statements, so forgetting one message would lose all of them."""

from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.error_text import describe
from eden_memory.logs import LibraryLogger
from eden_memory.names import Names
from eden_memory.schemas.documents import Fact

log = LibraryLogger()
WAY_OUT = "Run `eden rebuild NAME --switch` before you forget anything: it adds their statements."


async def without_statements(database: AsyncDatabase[dict[str, Any]], names: Names) -> int:
    """Return how many facts rest on several messages without the statements that say what came from which."""
    query = {
        "version": {"$gt": 1},
        "retired_at": None,
        "message_ids.1": {"$exists": True},
        "statements.0": {"$exists": False},
    }
    return await database[names[Fact.COLLECTION]].count_documents(query)


async def warn_of_merged(database: AsyncDatabase[dict[str, Any]], names: Names) -> None:
    """Log a warning if there are such facts; a failure to look is logged, too."""
    try:
        count = await without_statements(database, names)
    except Exception as error:  # noqa: BLE001 - the edge of a task of its own: nothing else depends on it
        log.warning("failed to look for facts without statements", reason=describe(error))
        return
    if count:
        what = "facts that an earlier version merged lose all of their text with one of their messages"
        log.warning(what, facts=count, hint=WAY_OUT)
