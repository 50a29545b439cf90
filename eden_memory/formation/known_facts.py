"""A fact as fact-dedup knows it, from the store or from a decision that is not applied yet."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from eden_memory.schemas.events import FactChanged
from eden_memory.schemas.provenance import SourceMessage


@dataclass(frozen=True, slots=True)
class KnownFact:
    """One fact in its newest version; `vector` packed float32 (schemas.fields.pack_vector)."""

    fact_id: str
    version: int
    scope_key: str
    text: str
    hash: str
    vector: bytes | None
    embedding_model: str | None
    sources: tuple[SourceMessage, ...]
    formed_at: datetime
    valid_from: datetime
    said_at: datetime
    """When what began it was said."""
    occurred_at: datetime | None = None
    """When what it tells of happened, where its text says so."""
    expires_at: datetime | None = None
    private: bool = False
    retired: bool = False
    replaces: str | None = None
    replaced_by: str | None = None
    retired_at: datetime | None = None
    retired_because: str | None = None
    embedding_call: str | None = None
    """The call that made the vector, where known."""

    @classmethod
    def of(cls, event: FactChanged) -> "KnownFact":
        """Return the fact as a decision left it."""
        embedding = event.embedding
        return cls(
            fact_id=event.fact_id,
            version=event.version,
            scope_key=event.scope.key,
            text=event.text,
            hash=event.hash,
            vector=embedding.vector if embedding else None,
            embedding_model=embedding.model if embedding else None,
            sources=event.sources,
            formed_at=event.formed_at,
            valid_from=event.valid_from,
            said_at=event.said_at,
            occurred_at=event.occurred_at,
            expires_at=event.expires_at,
            private=event.private,
            retired=event.retired_at is not None,
            replaces=event.replaces,
            replaced_by=event.replaced_by,
            retired_at=event.retired_at,
            retired_because=event.retired_because,
            embedding_call=embedding.call_id if embedding else None,
        )


@dataclass(frozen=True, slots=True)
class Near:
    """A fact found by similarity."""

    fact: KnownFact
    similarity: float
    """(1 + cosine) / 2."""


class FactSearch(Protocol):
    """Search in the stored facts of a scope, by meaning or text; active facts only unless said otherwise."""

    async def nearest(
        self, scope_key: str, vectors: Sequence[bytes], most: int, least: float
    ) -> Sequence[Sequence[Near]]:
        """Return for each vector the nearest facts of the scope, similar by at least `least`, best first."""
        ...

    async def with_hash(self, scope_key: str, hashes: Iterable[str]) -> Sequence[KnownFact]:
        """Return the facts of the scope whose text has one of these hashes."""
        ...

    async def facts(self, fact_ids: Iterable[str]) -> Mapping[str, KnownFact]:
        """Return facts by id, retired ones included."""
        ...


class Decided(Protocol):
    """Reader of fact-dedup's decisions that the writer may not have applied yet."""

    async def applied(self, scope_key: str) -> int:
        """Return the writer's mark: every decision of the scope up to this number is in the store."""
        ...

    async def beyond(self, scope_key: str, applied: int) -> Sequence[FactChanged]:
        """Return the facts of the scope's decisions numbered above `applied`, in order."""
        ...

    async def given(self, known: Mapping[str, int]) -> Mapping[str, int]:
        """Return the highest version ever given to facts where it is not the newest known (it was dropped)."""
        ...
