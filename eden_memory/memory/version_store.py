"""Facts about the whole store: versions of events written here, whether agents share memory, document counts.

A program that knows less than these versions does not begin.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.errors import EdenError
from eden_memory.names import Names
from eden_memory.schemas.documents import DOCUMENTS
from eden_memory.schemas.envelope import STORE_FORMAT
from eden_memory.schemas.scopes import SharingMode

KEY = "events"
SHARING = "sharing"
SHARING_MEANS: Mapping[SharingMode, str] = {
    "private": "what a session's users say stays with them",
    "agents": "agents whose document or stream says so learn from what their users say, and all their users see it",
    "team": "agents learn from what their users say, and all of these users see it",
}

COLLECTIONS = sorted({document.COLLECTION for document in DOCUMENTS})


async def heed_versions(
    database: AsyncDatabase[dict[str, Any]], names: Names, known: Mapping[str, int]
) -> None:
    """Store the formats that this program writes; raise EdenError if others were written here.

    It would dead-letter newer events one by one, and misread documents of another store format.
    """
    versions = database[names["versions"]]
    stored = await versions.find_one({"_id": KEY}) or {"format": STORE_FORMAT}
    if stored.get("format") != STORE_FORMAT:
        raise another_format(f"memory in {database.name}", stored.get("format", 0))
    written: Mapping[str, int] = stored.get("versions", {})
    newer = [f"{name} v{number}" for name, number in sorted(written.items()) if number > known.get(name, 0)]
    if newer:
        raise EdenError(
            f"a newer version of this program has written here: {', '.join(newer)} cannot be read",
            "Run that version, or a later one.",
        )
    raised = {f"versions.{name}": number for name, number in known.items()}
    await versions.update_one({"_id": KEY}, {"$max": raised, "$set": {"format": STORE_FORMAT}}, upsert=True)


def another_format(what: str, found: int) -> EdenError:
    """Return the error for a store of another format, with the way out."""
    return EdenError(
        f"another version of this program made the {what} (store format {found}; this version reads {STORE_FORMAT})",
        "Form memory again from your chat: set EDEN_MONGODB_PREFIX and EDEN_KAFKA_TOPIC_PREFIX to new names, and "
        "run `eden setup`. Or run the version that made it.",
    )


async def settle_sharing(
    database: AsyncDatabase[dict[str, Any]], names: Names, chosen: SharingMode | None
) -> SharingMode:
    """Store and return the sharing mode: the one chosen, else the stored one, with `since` where it changed.

    The mode is `private` where nobody has chosen one.
    """
    versions = database[names["versions"]]
    stored = await stored_sharing(database, names)
    if chosen is None and stored is None:
        await versions.update_one({"_id": SHARING}, {"$setOnInsert": {"mode": "private"}}, upsert=True)
        return await stored_sharing(database, names) or "private"
    if chosen is not None and chosen != stored:
        update = {"$set": {"mode": chosen}, "$currentDate": {"since": True}}
        await versions.update_one({"_id": SHARING}, update, upsert=True)
    return chosen or stored or "private"


async def stored_sharing(database: AsyncDatabase[dict[str, Any]], names: Names) -> SharingMode | None:
    """Return the stored sharing mode; None if there is none yet."""
    mode: SharingMode | None = (await database[names["versions"]].find_one({"_id": SHARING}) or {}).get(
        "mode"
    )
    return mode


async def count_documents(
    database: AsyncDatabase[dict[str, Any]], names: Names, kinds: Sequence[str] = COLLECTIONS
) -> Mapping[str, int]:
    """Return the approximate number of documents by collection, without prefix, from the server's metadata."""
    counts = await asyncio.gather(*(database[names[kind]].estimated_document_count() for kind in kinds))
    return dict(zip(kinds, counts, strict=True))
