"""Indexes of the memory collections."""

from datetime import UTC, datetime

from pymongo import ASCENDING, TEXT, IndexModel

from eden_memory.memory.vector_block_store import LARGE_SCOPE
from eden_memory.mongo.indexes import Indexes, index_on
from eden_memory.schemas.documents import (
    Consolidated,
    Context,
    Fact,
    ForgottenMark,
    Reflection,
    Snapshot,
    StoredBlob,
    Stream,
)

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
        *(index_on(literal, "_id") for literal in SOURCES),
    ),
    Reflection.COLLECTION: (
        index_on("scope_key", "absorbed", "formed_at", "position", "_id"),
        index_on("scope_key", "absorbed", "said_at", "formed_at", "position", "_id"),
        index_on("scope_key", "absorbed_into"),
        index_on(
            "propagated_scope",
            name="propagated",
            partialFilterExpression={"propagated_scope": {"$gt": ""}},
        ),
        *(index_on(literal, "_id") for literal in SOURCES),
    ),
    Consolidated.COLLECTION: (index_on("agent_id"), index_on("user_id")),
    StoredBlob.COLLECTION: (index_on("scope_key", "absorbed"), index_on("scope_key", "-version")),
    Snapshot.COLLECTION: (
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
