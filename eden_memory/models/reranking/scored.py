"""A candidate on its way through the stages of ranking."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from eden_memory.models.reranking.candidates import Candidate


@dataclass(frozen=True, slots=True)
class Scored:
    """A candidate, its score so far, and what each stage gave it."""

    fact: Candidate
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
