"""Candidates that fact stores hand to ranking, with a score, best first."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

MemoryKind = Literal["fact", "reflection"]


@dataclass(frozen=True, slots=True)
class When:
    """Which facts are searched: those that hold now, unless said otherwise."""

    as_of: datetime | None = None
    """Search the versions that held at this time (aware); None: now."""
    include_retired: bool = False
    """Retired facts too, as they last were."""
    private: frozenset[str] = frozenset()
    """Keys of scopes in which nothing is found that rests on what users said."""
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
        """Whether what stores keep warm answers it: facts that hold now, whenever things happened."""
        return self.is_now and not self.occurred

    @property
    def occurred(self) -> dict[str, datetime]:
        """The bounds of when something happened, as MongoDB compares; empty: there are none."""
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
    """Packed float32 (schemas.fields.pack_vector), where the store has it at hand."""
    session_ids: tuple[str, ...] = ()
    replaces: str | None = None
    """The fact that this one contradicted and replaced."""
    replaced_by: str | None = None
    expires_at: datetime | None = None
    of_users: bool = False
    """Of an agent, group or shard: it rests on what users said (eden_memory.access.sharing)."""
    occurred_at: datetime | None = None
    """When what it tells of happened, where its text says so."""
    kind: MemoryKind = "fact"
    """Of a reflection, `fact_id` is the id of the reflection."""

    def is_hidden(self, when: When) -> bool:
        """Whether it has expired, or rests on what users said in a scope where that is private."""
        expired = when.unexpired_at is not None and self.expired_at(when.unexpired_at)
        return expired or (self.of_users and self.scope_key in when.private)

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
        """With the score that a stage leaves it with; `given`: what the stage itself found, if that differs."""
        return Scored(self.fact, score, {**self.scores, stage: score if given is None else given})


def best_first(found: Iterable[Scored]) -> list[Scored]:
    """By score; of equals the newer first, then by id, so that an order never depends on the store's."""
    return sorted(
        found, key=lambda scored: (-scored.score, -scored.fact.valid_from.timestamp(), scored.fact.fact_id)
    )
