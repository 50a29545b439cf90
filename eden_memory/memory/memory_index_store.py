"""Indexes of the memory collections."""

from collections.abc import Mapping
from datetime import UTC, datetime

from pymongo import ASCENDING, DESCENDING, TEXT, IndexModel

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
"""Before every time that is stored: what is after it is there at all, so a partial index can serve the query."""
SOURCES = ("message_ids", "session_ids", "sources.user_id", "user_id")
"""Fields that name the sources of memory: forgetting reads them, a slice at a time in the order of ids."""


def _by(*fields: str, name: str | None = None) -> IndexModel:
    """Return an index: ascending, or descending for a name with a minus."""
    keys = [(field.lstrip("-"), DESCENDING if field.startswith("-") else ASCENDING) for field in fields]
    return IndexModel(keys, **({"name": name} if name else {}))


MEMORY_INDEXES: Mapping[str, tuple[IndexModel, ...]] = {
    Fact.COLLECTION: (
        IndexModel(
            [("scope_key", ASCENDING), ("hash", ASCENDING)],
            name="one_active_of_a_text",
            unique=True,
            partialFilterExpression={"active": True},
        ),
        _by("scope_key", "hash"),
        _by("scope_key", "revision"),
        _by("scope_key", "active", "-formed_at", "_id"),
        _by("scope_key", "active", "-valid_from", "_id"),
        _by("active", "embedding_model"),
        IndexModel(
            [("replaced_by", ASCENDING)],
            name="replaced",
            partialFilterExpression={"replaced_by": {"$gt": ""}},
        ),
        IndexModel(
            [("expires_at", ASCENDING)],
            name="expiring",
            partialFilterExpression={"active": True, "expires_at": {"$gt": BEGINNING}},
        ),
        IndexModel(
            [("agent_id", ASCENDING), ("content", TEXT)],
            name="text_of_an_agent",
            default_language="none",
            language_override="text_language",
        ),
        *(_by(literal, "_id") for literal in SOURCES),
    ),
    Reflection.COLLECTION: (
        _by("scope_key", "absorbed", "formed_at", "position", "_id"),
        _by("scope_key", "absorbed", "said_at", "formed_at", "position", "_id"),
        _by("scope_key", "absorbed_into"),
        *(_by(literal, "_id") for literal in SOURCES),
    ),
    Consolidated.COLLECTION: (_by("agent_id"), _by("user_id")),
    StoredBlob.COLLECTION: (_by("scope_key", "absorbed"), _by("scope_key", "-version")),
    Snapshot.COLLECTION: (
        _by("agent_id"),
        _by("agent_id", "scope", "active_facts"),
        _by("session_id"),
        _by("user_id"),
        _by("audience"),
    ),
    Stream.COLLECTION: (_by("agent_id"),),
    ForgottenMark.COLLECTION: (_by("kind", "target"),),
    Context.COLLECTION: (
        _by("scope_keys", "active_until"),
        IndexModel(
            [("stale_at", ASCENDING)],
            name="stale",
            partialFilterExpression={"stale_at": {"$gt": BEGINNING}},
        ),
        _by("session_id"),
        _by("user_id"),
        IndexModel([("active_until", ASCENDING)], expireAfterSeconds=0),
    ),
}
"""By collection, without prefix. A blob's and a snapshot's `_id` is the scope key: one of each."""
