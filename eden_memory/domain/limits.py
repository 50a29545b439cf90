"""How much of each scope is formed and kept: defaults of spec and settings, a stream's own before them."""

from collections.abc import Mapping
from dataclasses import dataclass

from schemas.documents import Stream
from schemas.scopes import Scope, ScopeKind


@dataclass(frozen=True, slots=True)
class ScopeLimits:
    """Limits of one scope's memory; words are counted by whitespace."""

    threshold: int
    """Reflections in the buffer at which it consolidates."""
    blob_words: int
    least: int
    """Reflections wanted of a window, at least and at most."""
    most: int
    extraction_guidance: str | None = None
    consolidation_guidance: str | None = None
    extraction_model: str | None = None
    consolidation_model: str | None = None
    fifo_limit: int | None = None
    retention_days: int | None = None
    item_words: int | None = None
    """Words of one fact or reflection; None: FACT_WORDS, REFLECTION_WORDS."""


DEFAULTS: Mapping[ScopeKind, ScopeLimits] = {
    "agent": ScopeLimits(10, 1_200, 0, 3),
    "user": ScopeLimits(4, 300, 0, 4),
    "session": ScopeLimits(4, 200, 1, 3),
    "group": ScopeLimits(6, 400, 0, 3),
    "shard": ScopeLimits(10, 600, 0, 3),
}
FACT_WORDS = 30
REFLECTION_WORDS = 35
LONGEST_FACT = 2_000
LONGEST_REASON = 1_000
"""Characters of what a command may say: a fact stands in its scope's snapshot, and in prompts and contexts."""
FACTS_OF_A_WINDOW = 30
SHOWN_OF_A_BUFFER = 2
"""A prompt and a context show at most the newest 2 x threshold of a buffer."""
ABSORBED_AT_ONCE = 200
CONSOLIDATION_SECONDS = 30.0
"""Of the windows' time, between two consolidations of a scope."""


def label_of(scope: Scope) -> str:
    """How prompts name a scope: `agent`, `group`, `user`, `session`, `shard:<name>`."""
    return f"shard:{scope.shard}" if scope.kind == "shard" else scope.kind


def limits_of(scope: Scope, streams: Mapping[str, Stream]) -> ScopeLimits:
    """The limits of a scope; `streams` are its agent's, by label."""
    base, own = DEFAULTS[scope.kind], streams.get(label_of(scope))
    if own is None:
        return base
    return ScopeLimits(
        threshold=own.threshold or base.threshold,
        blob_words=own.word_limit or base.blob_words,
        least=base.least if own.min_items is None else own.min_items,
        most=base.most if own.max_items is None else own.max_items,
        extraction_guidance=own.extraction_guidance,
        consolidation_guidance=own.consolidation_guidance,
        extraction_model=own.extraction_model,
        consolidation_model=own.consolidation_model,
        fifo_limit=own.fifo_limit,
        retention_days=own.retention_days,
        item_words=own.item_word_limit,
    )
