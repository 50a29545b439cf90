"""Limits on what is formed and kept of each scope: the settings' defaults, overridden by a stream's own."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from eden_memory.constants import MOST_RETENTION_DAYS
from eden_memory.schemas.documents import Stream
from eden_memory.schemas.scopes import Scope, ScopeKind, Sharing, SharingMode


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
    retention_days: int | None = None
    item_words: int | None = None
    """Words of one fact or reflection; None: as FormationLimits says."""
    active: bool = True
    """False: switched off, nothing of it is formed, consolidated or shown."""

    def until(self, said_at: datetime) -> datetime | None:
        """When a fact that was said then expires; None: never."""
        if self.retention_days is None:
            return None
        return said_at + timedelta(days=min(self.retention_days, MOST_RETENTION_DAYS))


DEFAULTS: Mapping[ScopeKind, ScopeLimits] = {
    "agent": ScopeLimits(10, 1_200, 0, 3),
    "user": ScopeLimits(4, 300, 0, 4),
    "session": ScopeLimits(4, 200, 1, 3),
    "group": ScopeLimits(6, 400, 0, 3),
    "shard": ScopeLimits(10, 600, 0, 3),
}


@dataclass(frozen=True, slots=True)
class FormationLimits:
    """The limits that the settings set for all agents (EDEN_LIMITS_…)."""

    scopes: Mapping[ScopeKind, ScopeLimits]
    facts: int = 30
    """Of one window, at most."""
    fact_words: int = 30
    reflection_words: int = 35
    similar_facts: int = 5
    """Known facts that a new one is compared with, at most."""
    language: str | None = None
    """Of everything that is formed; None: as the conversation has it."""
    short_prompts: bool = False
    """Ask by the prompts for small models."""


STANDARD = FormationLimits(DEFAULTS)
"""The settings' defaults."""


def label_of(scope: Scope) -> str:
    """The name of a scope in prompts: `agent`, `group`, `user`, `session`, `shard:<name>`."""
    return f"shard:{scope.shard}" if scope.kind == "shard" else scope.kind


def sharing_of(
    label: str, streams: Mapping[str, Stream], mode: SharingMode, *, learns: bool = False
) -> Sharing:
    """Return how an agent, its groups (`agent`) or a shard (its label) is shared; the mode `private` always wins.

    Else the shard's stream says, else its agent's stream, else, with the mode `agents`, the agent's own document
    (`learns`).
    """
    if mode == "private":
        return "private"
    for name in dict.fromkeys((label, "agent")):
        stream = streams.get(name)
        if stream is not None and stream.sharing is not None:
            return stream.sharing
    return "team" if learns or mode == "team" else "private"


def limits_of(scope: Scope, streams: Mapping[str, Stream], limits: FormationLimits = STANDARD) -> ScopeLimits:
    """The limits of a scope; `streams` are its agent's, by label. A session's memory is always formed."""
    base, own = limits.scopes[scope.kind], streams.get(label_of(scope))
    if own is None:
        return base
    if not own.active:
        return replace(base, active=scope.kind == "session")
    least, most = _items(own, base)
    return ScopeLimits(
        threshold=own.threshold or base.threshold,
        blob_words=own.word_limit or base.blob_words,
        least=least,
        most=most,
        extraction_guidance=own.extraction_guidance,
        consolidation_guidance=own.consolidation_guidance,
        extraction_model=own.extraction_model,
        consolidation_model=own.consolidation_model,
        retention_days=own.retention_days,
        item_words=own.item_word_limit or base.item_words,
    )


def _items(own: Stream, base: ScopeLimits) -> tuple[int, int]:
    """Return the least and the most reflections of a window; of a stream that sets one, the other follows."""
    least = base.least if own.min_items is None else own.min_items
    most = max(base.most, own.min_items or 0) if own.max_items is None else own.max_items
    return min(least, most), most
