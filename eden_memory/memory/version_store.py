"""Facts about the whole store: versions of events written here, whether agents share memory, document counts.

A program that knows less than these versions does not begin.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.errors import EdenError
from eden_memory.names import Names
from eden_memory.schemas.documents import DOCUMENTS, Fact, PartitionState, WindowTexts
from eden_memory.schemas.scopes import Sharing

KEY = "events"
SHARING = "sharing"
SHARING_MEANS: Mapping[Sharing, str] = {
    "private": "what a session's users say stays with them",
    "team": "agents learn from what their users say, and all of these users see it",
}
FORMED = (WindowTexts.COLLECTION, Fact.COLLECTION, PartitionState.COLLECTION)
"""Collections of which none is empty once memory has formed."""

COLLECTIONS = sorted({document.COLLECTION for document in DOCUMENTS})


async def heed_versions(
    database: AsyncDatabase[dict[str, Any]], names: Names, known: Mapping[str, int]
) -> None:
    """Store the event versions that this program writes; raise EdenError if newer ones were written here.

    It would dead-letter them, one by one.
    """
    versions = database[names["versions"]]
    written: Mapping[str, int] = (await versions.find_one({"_id": KEY}) or {}).get("versions", {})
    newer = [f"{name} v{number}" for name, number in sorted(written.items()) if number > known.get(name, 0)]
    if newer:
        raise EdenError(
            f"a newer version of this program has written here: {', '.join(newer)} cannot be read",
            "Run that version, or a later one.",
        )
    raised = {f"versions.{name}": number for name, number in known.items()}
    await versions.update_one({"_id": KEY}, {"$max": raised}, upsert=True)


async def settle_sharing(
    database: AsyncDatabase[dict[str, Any]], names: Names, chosen: Sharing | None
) -> Sharing:
    """Store and return the sharing mode: the one chosen, else the stored one, with `since` where it changed.

    A store that says nothing keeps what earlier programs did (`team`), unless nothing was ever formed in it.
    """
    versions = database[names["versions"]]
    stored = await stored_sharing(database, names)
    if chosen is None and stored is None:
        first: Sharing = "team" if await _has_formed(database, names) else "private"
        await versions.update_one({"_id": SHARING}, {"$setOnInsert": {"mode": first}}, upsert=True)
        return await stored_sharing(database, names) or first
    if chosen is not None and chosen != stored:
        update = {"$set": {"mode": chosen}, "$currentDate": {"since": True}}
        await versions.update_one({"_id": SHARING}, update, upsert=True)
    return chosen or stored or "private"


async def stored_sharing(database: AsyncDatabase[dict[str, Any]], names: Names) -> Sharing | None:
    """Return the stored sharing mode; None if there is none yet."""
    mode: Sharing | None = (await database[names["versions"]].find_one({"_id": SHARING}) or {}).get("mode")
    return mode


async def _has_formed(database: AsyncDatabase[dict[str, Any]], names: Names) -> bool:
    """Return whether memory was ever formed in this namespace, or in the installation's first one."""
    collections = {of[short] for of in (names, Names(names.shared)) for short in FORMED}
    for name in collections:
        if await database[name].find_one({}, {"_id": 1}) is not None:
            return True
    return False


async def count_documents(
    database: AsyncDatabase[dict[str, Any]], names: Names, kinds: Sequence[str] = COLLECTIONS
) -> Mapping[str, int]:
    """Return the approximate number of documents by collection, without prefix, from the server's metadata."""
    counts = await asyncio.gather(*(database[names[kind]].estimated_document_count() for kind in kinds))
    return dict(zip(kinds, counts, strict=True))
