"""The installation's secret, from which keys are made (eden_memory.formation.prompts.Fence): created once."""

import os
from datetime import UTC, datetime
from typing import Any

from pymongo import ReturnDocument, WriteConcern
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import DuplicateKeyError
from pymongo.read_concern import ReadConcern

from eden_memory.names import Names

BYTES = 32
_ID = "secret"


async def installation_secret(database: AsyncDatabase[dict[str, Any]], names: Names) -> bytes:
    """Return the secret in `installation`; the first caller creates it, acknowledged by a majority.

    Every namespace of an installation reads it from the live one, so that a prompt reads the same in each.
    """
    collection = database.get_collection(
        names["installation"],
        write_concern=WriteConcern("majority"),
        read_concern=ReadConcern("majority"),
    )
    new = {"secret": os.urandom(BYTES), "made_at": datetime.now(UTC)}
    try:
        found = await collection.find_one_and_update(
            {"_id": _ID}, {"$setOnInsert": new}, upsert=True, return_document=ReturnDocument.AFTER
        )
    except DuplicateKeyError:  # another process was making it at the same moment
        found = await collection.find_one({"_id": _ID})
    return bytes((found or {})["secret"])
