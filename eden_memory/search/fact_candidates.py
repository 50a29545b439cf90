"""Candidates that fact stores hand to ranking, best first, and how they are read from `memory_facts`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from pydantic import TypeAdapter, ValidationError

from eden_memory.access.visible import rests_on_users
from eden_memory.errors import EdenError
from eden_memory.mongo.documents import decoded_rows, encoded_row, packed_of, quickly_decoded
from eden_memory.mongo.lenient_decoding import leave_out
from eden_memory.schemas.scopes import ScopeKey

MemoryKind = Literal["fact", "reflection"]


@dataclass(frozen=True, slots=True)
class When:
    """Which facts are searched; by default those that hold now."""

    as_of: datetime | None = None
    """Search the versions that held at this time (aware); None: now."""
    include_retired: bool = False
    """Include retired facts, in their last version."""
    private: frozenset[str] = frozenset()
    """Keys of scopes in which facts that rest on users' words are not found, and ids of memory that is not found."""
    unexpired_at: datetime | None = None
    """Facts that have expired by then are not found; None: expired ones too."""
    occurred_after: datetime | None = None
    """Only facts that say when something happened, this time or later (aware)."""
    occurred_before: datetime | None = None
    """Only facts that say when something happened, before this time (aware)."""

    @property
    def is_now(self) -> bool:
        """Whether only facts that hold now are wanted."""
        return self.as_of is None and not self.include_retired

    @property
    def is_warm(self) -> bool:
        """Whether the stores' caches can answer it: facts that hold now, whenever things happened."""
        return self.is_now and not self.occurred

    @property
    def occurred(self) -> dict[str, datetime]:
        """Return the bounds of when something happened, in MongoDB's form; empty if there are none."""
        bounds = {"$gte": self.occurred_after, "$lt": self.occurred_before}
        return {name: moment for name, moment in bounds.items() if moment is not None}


NOW = When()


@dataclass(frozen=True, slots=True)
class FactCandidate:
    """A fact or reflection that a search found, in the version that `When` asks for."""

    fact_id: str
    scope_key: str
    text: str
    formed_at: datetime
    """When it was formed: of history read in, long after it was said."""
    valid_from: datetime
    """Since when this version holds."""
    version: int
    said_at: datetime
    """When what began it was said."""
    retired_at: datetime | None = None
    vector: bytes | None = None
    """Packed float32 (schemas.fields.pack_vector), if the store has it at hand."""
    session_ids: tuple[str, ...] = ()
    replaces: str | None = None
    """The fact that this one contradicted and replaced."""
    replaced_by: str | None = None
    expires_at: datetime | None = None
    of_users: bool = False
    """Whether memory of an agent, group or shard rests on users' words (eden_memory.access.visible)."""
    occurred_at: datetime | None = None
    """When the event happened, if the text says so."""
    kind: MemoryKind = "fact"
    """For a reflection, `fact_id` is the reflection's id."""

    def is_hidden(self, when: When) -> bool:
        """Whether it has expired, is hidden by its id, or rests on users' words where these are private."""
        expired = when.unexpired_at is not None and self.expired_at(when.unexpired_at)
        private = self.of_users and self.scope_key in when.private
        return expired or private or self.fact_id in when.private

    def expired_at(self, moment: datetime) -> bool:
        """Whether it has expired by then."""
        return self.expires_at is not None and self.expires_at <= moment


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate of one list."""

    fact: FactCandidate
    score: float
    """Semantic: (1 + cosine) / 2. Textual: the store's own scale, see docs/searching.md."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A candidate, its score so far, and what each stage gave it."""

    fact: FactCandidate
    score: float
    scores: dict[str, float] = field(default_factory=dict[str, float])

    def now(self, stage: str, score: float, given: float | None = None) -> "Scored":
        """Return it with a stage's score; `given`: the stage's own value, if it differs."""
        return Scored(self.fact, score, {**self.scores, stage: score if given is None else given})


def best_first(found: Iterable[Scored]) -> list[Scored]:
    """Order by score; of equal scores the newer first, then by id, so that the store's order never matters."""
    return sorted(
        found, key=lambda scored: (-scored.score, -scored.fact.valid_from.timestamp(), scored.fact.fact_id)
    )


Row = dict[str, Any]

SHOWN = (
    "scope_key",
    "content",
    "formed_at",
    "said_at",
    "occurred_at",
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

SHORT = {name: chr(ord("a") + number) for number, name in enumerate((*SHOWN, "of_users"))}
"""Names of fields in a cached document."""

CACHED = [(name, SHORT[name]) for name in SHOWN if name != "scope_key" and "." not in name]

_KEYS: TypeAdapter[tuple[ScopeKey, ...]] = TypeAdapter(tuple[ScopeKey, ...])


def candidate(row: Mapping[str, Any], vector: bytes | None = None) -> FactCandidate:
    """A stored fact, with its vector where that is given or was read."""
    return FactCandidate(
        fact_id=row["_id"],
        scope_key=row["scope_key"],
        text=row["content"],
        formed_at=row["formed_at"],
        valid_from=row["valid_from"],
        version=row["version"],
        said_at=row["said_at"],
        retired_at=row.get("retired_at"),
        vector=vector or packed_of(row.get("embedding")),
        session_ids=tuple(row.get("session_ids", ())),
        replaces=row.get("replaces"),
        replaced_by=row.get("replaced_by"),
        expires_at=row.get("expires_at"),
        of_users=row.get("of_users", False) or rests_on_users(row["scope_key"], row.get("sources", ())),
        occurred_at=row.get("occurred_at"),
    )


class CachedFact(NamedTuple):
    """An active fact in few bytes."""

    fact_id: str
    text: str
    of_users: bool
    expires_at: datetime | None
    document: bytes
    """BSON of the fields that a search shows or ranks by."""
    vector: bytes
    """Packed float32; empty if the fact has no vector of the embedder's model."""


def cached_facts(batch: bytes, model: str) -> dict[str, CachedFact | None]:
    """Return the facts of a batch of BSON documents by id; None for inactive or unreadable ones."""
    facts = dict[str, CachedFact | None]()
    for row in quickly_decoded(batch):
        try:
            facts[row["_id"]] = _cached(row, model) if row["active"] else None
        except Exception as error:  # noqa: BLE001 - whatever it is, this document raised it
            leave_out("fact", row, error)
            facts[row["_id"]] = None
    return facts


def _cached(row: Row, model: str) -> CachedFact:
    of_users = rests_on_users(row["scope_key"], row.get("sources", ()))
    expires_at = row.get("expires_at")
    vector = packed_of(row.get("embedding")) if row.get("embedding_model") == model else None
    if not (isinstance(row["content"], str) and row["formed_at"] and row["valid_from"] and row["version"]):
        raise ValueError("a field that every fact has is missing")
    return CachedFact(
        fact_id=row["_id"],
        text=row["content"],
        of_users=of_users,
        expires_at=expires_at and expires_at.replace(tzinfo=UTC),
        document=cached_document(row, of_users),
        vector=vector or b"",
    )


def cached_document(row: Row, of_users: bool = False) -> bytes:
    """BSON of the fields that a search shows, under short names."""
    document = {short: row[name] for name, short in CACHED if row.get(name) is not None}
    return encoded_row(document | {SHORT["of_users"]: True} if of_users else document)


def cached_text(document: bytes) -> str:
    """The text of a cached document."""
    return decoded_rows(document)[0][SHORT["content"]]


def cached_candidate(fact_id: str, scope_key: str, document: bytes, vector: bytes | None) -> FactCandidate:
    """A cached fact with its vector."""
    (row,) = decoded_rows(document)
    named = {name: row[short] for name, short in SHORT.items() if short in row}
    return candidate({**named, "_id": fact_id, "scope_key": scope_key}, vector)


def checked(scope_keys: Sequence[str]) -> list[str]:
    """Return the scope keys, each once; only text of their form ever becomes part of a query. EdenError."""
    try:
        return list(dict.fromkeys(_KEYS.validate_python(tuple(scope_keys), strict=True)))
    except ValidationError as error:
        raise EdenError(
            "that is no scope", "Name scopes by their keys, as eden_memory.schemas makes them."
        ) from error
