"""Indexes of the memory collections, blocks of stored vectors, and the versions that the store was written with.

A program that knows less than these versions does not begin.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pymongo import ASCENDING, TEXT, DeleteMany, DeleteOne, IndexModel, ReplaceOne
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.errors import EdenError
from eden_memory.memory.memory_batch import ScopeWrite
from eden_memory.mongo.validators import Indexes, index_on
from eden_memory.names import Names
from eden_memory.schemas.documents import (
    DOCUMENTS,
    Consolidated,
    Context,
    Fact,
    ForgottenMark,
    Reflection,
    Snapshot,
    StoredBlob,
    Stream,
)
from eden_memory.schemas.envelope import STORE_FORMAT
from eden_memory.schemas.scopes import SharingMode

Row = dict[str, Any]
LARGE_SCOPE = 5_000
"""Active facts from which a scope's vectors are stored as blocks."""
NEARLY_LARGE = LARGE_SCOPE // 2
"""One batch adds and retires far fewer facts than this difference."""


def blocks_of(scope_key: str, made: str = "") -> Row:
    """Return a query for a scope's blocks, of one making if that is given: `<scope key>/<made>/<number>`."""
    start = f"{scope_key}/{made}" + ("/" if made else "")
    return {"_id": {"$gt": start, "$lt": start[:-1] + "0"}}  # 0 is the character behind the slash


def deletions(changes: Sequence[ScopeWrite]) -> list[DeleteMany | DeleteOne | ReplaceOne[Row]]:
    """Delete the vectors of scopes in which facts are forgotten.

    In a large scope the document that every new block is counted in is written as well: then a process that copies
    vectors at this moment meets a conflict, and stores none that it had read before.
    """
    operations: list[DeleteMany | DeleteOne | ReplaceOne[Row]] = []
    for change in changes:
        if change.gone_facts and (snapshot := change.snapshot) is not None:
            operations += [_emptied(snapshot), DeleteMany(blocks_of(snapshot.id))]
    return operations


def _emptied(snapshot: Snapshot) -> DeleteOne | ReplaceOne[Row]:
    if snapshot.active_facts < NEARLY_LARGE:
        return DeleteOne({"_id": snapshot.id})
    empty: Row = {"agent_id": snapshot.agent_id, "reset_revision": snapshot.revision}
    return ReplaceOne({"_id": snapshot.id}, empty, upsert=True)


BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
"""A time before all stored ones: a condition "after it" means "is set", so a partial index can serve the query."""
EARLIEST = datetime.min.replace(tzinfo=UTC)
"""The earliest time at which an event may have happened; no fact has an earlier one."""
SOURCES = ("message_ids", "session_ids", "sources.user_id", "user_id")
"""Fields that name the sources of memory: forgetting reads them, a slice at a time in the order of ids."""


MEMORY_INDEXES: Indexes = {
    Fact.COLLECTION: (
        index_on(
            "scope_key",
            "hash",
            name="one_active_of_a_text",
            unique=True,
            partialFilterExpression={"active": True},
        ),
        index_on("scope_key", "hash"),
        index_on("scope_key", "revision"),
        index_on("scope_key", "active", "-formed_at", "_id"),
        index_on("scope_key", "active", "-valid_from", "_id"),
        index_on(
            "scope_key",
            "active",
            "-occurred_at",
            "_id",
            name="occurred",
            partialFilterExpression={"occurred_at": {"$gte": EARLIEST}},
        ),
        index_on("active", "embedding_model"),
        index_on(
            "replaced_by",
            name="replaced",
            partialFilterExpression={"replaced_by": {"$gt": ""}},
        ),
        index_on(
            "expires_at",
            name="expiring",
            partialFilterExpression={"active": True, "expires_at": {"$gt": BEGINNING}},
        ),
        IndexModel(
            [("agent_id", ASCENDING), ("content", TEXT)],
            name="text_of_an_agent",
            default_language="none",
            language_override="text_language",
        ),
        index_on("command.command_id", sparse=True),
        *(index_on(literal, "_id") for literal in SOURCES),
    ),
    Reflection.COLLECTION: (
        index_on("scope_key", "absorbed", "formed_at", "position", "_id"),
        index_on("scope_key", "absorbed", "said_at", "formed_at", "position", "_id"),
        index_on("scope_key", "absorbed_into"),
        index_on("agent_id", "scope", "-said_at", "_id"),
        index_on(
            "propagated_scope",
            name="propagated",
            partialFilterExpression={"propagated_scope": {"$gt": ""}},
        ),
        *(index_on(literal, "_id") for literal in SOURCES),
    ),
    Consolidated.COLLECTION: (index_on("agent_id"), index_on("user_id")),
    StoredBlob.COLLECTION: (
        index_on("scope_key", "absorbed"),
        index_on("scope_key", "-version"),
        index_on("command.command_id", sparse=True),
    ),
    Snapshot.COLLECTION: (
        index_on("-changed_at"),
        index_on("agent_id"),
        index_on("agent_id", "scope", "active_facts"),
        index_on("session_id"),
        index_on("user_id", "_id"),
        index_on("audience", "_id"),
        index_on(
            "active_facts",
            name="large",
            partialFilterExpression={"active_facts": {"$gte": LARGE_SCOPE}},
        ),
    ),
    Stream.COLLECTION: (index_on("agent_id"),),
    ForgottenMark.COLLECTION: (index_on("kind", "target"),),
    Context.COLLECTION: (
        index_on("scope_keys", "active_until"),
        index_on(
            "stale_at",
            name="stale",
            partialFilterExpression={"stale_at": {"$gt": BEGINNING}},
        ),
        index_on("session_id"),
        index_on("user_id"),
        index_on("recent_from"),
        index_on("active_until", expireAfterSeconds=0),
    ),
}
"""A blob's and a snapshot's `_id` is the scope key: one of each."""


KEY = "events"
SHARING = "sharing"
SHARING_MEANS: Mapping[SharingMode, str] = {
    "private": "what a session's users say stays with them",
    "agents": "agents whose document or stream says so learn from what their users say, and all their users see it",
    "team": "agents learn from what their users say, and all of these users see it",
}
FOREIGN = ("facts", "reflections", "consolidated", "sessions", "messages", "snapshots", "contexts")
"""Collections whose names an earlier system or an application may have used."""
COLLECTIONS = sorted({document.COLLECTION for document in DOCUMENTS})


async def heed_versions(
    database: AsyncDatabase[dict[str, Any]], names: Names, known: Mapping[str, int]
) -> None:
    """Store the formats that this program writes; EdenError as `refuse_other_versions`."""
    await refuse_other_versions(database, names, known)
    raised = {f"versions.{name}": number for name, number in known.items()}
    change = {"$max": raised, "$set": {"format": STORE_FORMAT}}
    await database[names["versions"]].update_one({"_id": KEY}, change, upsert=True)


async def refuse_other_versions(
    database: AsyncDatabase[dict[str, Any]], names: Names, known: Mapping[str, int]
) -> None:
    """Raise EdenError if other formats were written here than this program knows.

    It would dead-letter newer events one by one, and misread documents of another store format.
    """
    stored = await database[names["versions"]].find_one({"_id": KEY}) or {"format": STORE_FORMAT}
    if stored.get("format") != STORE_FORMAT:
        raise another_format(f"memory in {database.name}", stored.get("format", 0))
    written: Mapping[str, int] = stored.get("versions", {})
    newer = [f"{name} v{number}" for name, number in sorted(written.items()) if number > known.get(name, 0)]
    if newer:
        raise EdenError(
            f"a newer version of this program has written here: {', '.join(newer)} cannot be read",
            "Run that version, or a later one.",
        )


async def refuse_foreign(database: AsyncDatabase[dict[str, Any]], names: Names) -> None:
    """Raise EdenError if collections of our names hold another program's documents: our ids are no ObjectIds."""
    found = [
        names[name]
        for name in FOREIGN
        if await database[names[name]].find_one({"_id": {"$type": "objectId"}}, {"_id": 1}) is not None
    ]
    if found:
        raise EdenError(
            f"the database {database.name} has documents of another program in {', '.join(found)}",
            "Set EDEN_MONGODB_PREFIX to a prefix that no collection there has, such as eden_, and run `eden setup`.",
        )


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
