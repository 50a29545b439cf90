"""Documents of `memory_facts` as fact-dedup and search read them: tolerantly, by the few fields that they need."""

from typing import Any

from pydantic import TypeAdapter

from eden_memory.formation.known_facts import KnownFact
from eden_memory.mongo.documents import packed_of
from eden_memory.schemas.provenance import SourceMessage

Row = dict[str, Any]
FIELDS = (
    "scope_key",
    "content",
    "hash",
    "embedding",
    "embedding_model",
    "version",
    "active",
    "sources",
    "formed_at",
    "said_at",
    "valid_from",
    "expires_at",
    "retired_at",
    "retired_because",
    "replaces",
    "replaced_by",
)
_SOURCES: TypeAdapter[tuple[SourceMessage, ...]] = TypeAdapter(tuple[SourceMessage, ...])


def known_fact(row: Row) -> KnownFact:
    """A stored fact; its sources are checked."""
    retired_at = row.get("retired_at")
    return KnownFact(
        fact_id=row["_id"],
        version=row["version"],
        scope_key=row["scope_key"],
        text=row["content"],
        hash=row["hash"],
        vector=packed_of(row.get("embedding")),
        embedding_model=row.get("embedding_model"),
        sources=_SOURCES.validate_python(row.get("sources", ()), strict=False, extra="ignore"),
        formed_at=row["formed_at"],
        valid_from=row["valid_from"],
        said_at=row.get("said_at") or row["formed_at"],
        expires_at=row.get("expires_at"),
        retired=retired_at is not None,
        replaces=row.get("replaces"),
        replaced_by=row.get("replaced_by"),
        retired_at=retired_at,
        retired_because=row.get("retired_because"),
    )
