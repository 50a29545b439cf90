"""What became of people's own changes in another memory. Pure."""

from dataclasses import dataclass
from typing import Literal

from eden_memory.replay.user_edits.user_edits import OwnChange

Outcome = Literal["applied", "already", "unmatched", "outdated"]


@dataclass(frozen=True, slots=True)
class Settled:
    """One change, and what it met."""

    change: OwnChange
    outcome: Outcome
    fact_id: str | None = None
    """The fact that it is about in the other memory; None for an addition, and where nothing matches."""
    text: str | None = None
    """What that fact says; of an unmatched change what comes nearest, if anything does."""
    similarity: float | None = None
    """(1 + cosine) / 2; None: the very text."""
    why: str | None = None
    """Why it is outdated."""


@dataclass(frozen=True, slots=True)
class Applied:
    """All changes, each once, by scope key, then by time."""

    applied: tuple[Settled, ...] = ()
    """A command was given (or would be, where nothing is published)."""
    already: tuple[Settled, ...] = ()
    """Nothing to do."""
    unmatched: tuple[Settled, ...] = ()
    """Edits and retirements of what the other memory does not say: for people to look at."""
    outdated: tuple[Settled, ...] = ()
    """Formation has since reworded or ended what people had changed: also for people to look at."""
