"""Documents of `memory_facts` as search reads them: tolerantly, by the few fields that it needs."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from eden_memory.access.sharing import rests_on_users
from eden_memory.errors import EdenError
from eden_memory.mongo.documents import packed_of
from eden_memory.schemas.scopes import ScopeKey
from eden_memory.search.fact_candidates import FactCandidate

Row = dict[str, Any]
SHOWN = (
    "scope_key",
    "content",
    "formed_at",
    "said_at",
    "valid_from",
    "version",
    "retired_at",
    "session_ids",
    "replaces",
    "replaced_by",
    "expires_at",
    "sources.session_id",
    "sources.participants",
)
KEPT = (*SHOWN, "embedding", "embedding_model", "active", "revision")
_KEYS: TypeAdapter[tuple[ScopeKey, ...]] = TypeAdapter(tuple[ScopeKey, ...])


def candidate(row: Mapping[str, Any]) -> FactCandidate:
    """A stored fact, with its vector where that was read."""
    return FactCandidate(
        fact_id=row["_id"],
        scope_key=row["scope_key"],
        text=row["content"],
        formed_at=row["formed_at"],
        valid_from=row["valid_from"],
        version=row["version"],
        retired_at=row.get("retired_at"),
        vector=packed_of(row.get("embedding")),
        session_ids=tuple(row.get("session_ids", ())),
        replaces=row.get("replaces"),
        replaced_by=row.get("replaced_by"),
        expires_at=row.get("expires_at"),
        of_users=rests_on_users(row["scope_key"], row.get("sources", ())),
        began_at=row.get("said_at"),
    )


def checked(scope_keys: Sequence[str]) -> list[str]:
    """Scope keys, each once: text of their form and nothing else ever becomes a part of a query. EdenError."""
    try:
        return list(dict.fromkeys(_KEYS.validate_python(tuple(scope_keys), strict=True)))
    except ValidationError as error:
        raise EdenError(
            "that is no scope", "Name scopes by their keys, as eden_memory.schemas makes them."
        ) from error
