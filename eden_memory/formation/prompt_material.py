"""Values that prompts are rendered from: numbered messages, facts and scopes. No ids of the database.

Numbers count from 1 in the order of the tuples; labels name scopes (`agent`, `group`, `user`, `session`,
`shard:<name>`).
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal


@dataclass(frozen=True, slots=True)
class TranscriptLine:
    """One message of a window."""

    speaker: str
    """The name shown."""
    role: str
    time: datetime
    text: str


@dataclass(frozen=True, slots=True)
class DatedText:
    """A reflection, with the time when it was said."""

    said_at: datetime
    text: str


@dataclass(frozen=True, slots=True)
class ScopeBrief:
    """One scope that memory may go to, as a prompt shows it."""

    label: str
    guidance: str | None = None
    """The stream's own instructions."""
    least: int = 0
    most: int = 30
    """Items wanted of this scope."""
    blob: str | None = None
    """Reflections only: what is known of it."""
    buffer: tuple[DatedText, ...] = ()
    """Reflections only: the newest that no blob has absorbed, oldest first."""
    words: int | None = None
    """Of one item, where the stream has a limit of its own."""
    blob_said_at: datetime | None = None
    """When the newest of what the blob holds was said, where that is known."""


@dataclass(frozen=True, slots=True)
class FactMaterial:
    """The values of the prompt `fact-extraction`."""

    lines: tuple[TranscriptLine, ...]
    scopes: tuple[ScopeBrief, ...]
    most: int
    words: int
    """Of one fact."""
    language: str | None = None
    """The language that memory is kept in; None: that of the conversation. Other materials have it, too."""
    before: tuple[TranscriptLine, ...] = ()
    """Messages before the window, which explain it; their numbers go on behind those of `lines`."""
    taken_back: tuple[str, ...] = ()
    """What these users said that was shared, and that a person then took back."""
    given: bool = False
    """The messages were added for all of the agent's users; for models that read no prompt."""


@dataclass(frozen=True, slots=True)
class KnownLine:
    """A known fact that a new one may mean something for."""

    text: str
    similarity: float
    """(1 + cosine) / 2, of the new fact that it is nearest to."""
    said_at: datetime | None = None
    """Since when it is true."""


@dataclass(frozen=True, slots=True)
class NewFact:
    """A proposed fact with the numbers of the known facts (and, behind those, earlier new ones) near it."""

    text: str
    candidates: tuple[int, ...]
    similarities: tuple[float, ...]
    said_at: datetime | None = None


def fact_label(number: int, known: int) -> str:
    """Return `K3` or `N1` for a candidate's number: known facts count from 1, new ones go on behind them."""
    return f"K{number}" if number <= known else f"N{number - known}"


@dataclass(frozen=True, slots=True)
class DecisionMaterial:
    """The values of the prompt `fact-decisions`."""

    known: tuple[KnownLine, ...]
    new: tuple[NewFact, ...]
    words: int
    language: str | None = None


@dataclass(frozen=True, slots=True)
class ReflectionMaterial:
    """The values of the prompt `reflection-extraction`; scopes from broad to narrow."""

    lines: tuple[TranscriptLine, ...]
    scopes: tuple[ScopeBrief, ...]
    facts: tuple[str, ...]
    words: int
    """Of one reflection."""
    language: str | None = None
    before: tuple[TranscriptLine, ...] = ()
    """As in `FactMaterial`."""
    taken_back: tuple[str, ...] = ()
    """As in `FactMaterial`."""
    given: bool = False


@dataclass(frozen=True, slots=True)
class MemoryMaterial:
    """The values of the prompt `memory-extraction`: both materials show the same messages."""

    facts: FactMaterial
    reflections: ReflectionMaterial


@dataclass(frozen=True, slots=True)
class ConsolidationMaterial:
    """The values of the prompt `consolidation`."""

    label: str
    blob: str | None
    buffer: tuple[DatedText, ...]
    """Oldest first."""
    guidance: str | None
    words: int
    """The limit of the blob."""
    blob_said_at: datetime | None = None
    """When the newest of what the blob holds was said, where that is known."""
    pins: tuple[str, ...] = ()
    """Sentences of the blob that stay word for word."""
    language: str | None = None


@dataclass(frozen=True, slots=True)
class PropagationMaterial:
    """The values of the prompt `propagation`."""

    to: Literal["group", "agent"]
    reflections: tuple[str, ...]
    words: int
    """Of one reflection."""
    language: str | None = None
    others: tuple[str, ...] | None = None
    """Reflections of other scopes that may show the same; their numbers go on. None: one scope is enough."""


Material = FactMaterial | DecisionMaterial | ReflectionMaterial | ConsolidationMaterial | PropagationMaterial
TOKENS_OF_A_WORD = 4
"""English takes 1.3, most other languages up to 3."""
TOKENS_OF_AN_ITEM = 60
"""Its scope, its message numbers, its reason, and the JSON around them."""


def longest_answer(material: Material | MemoryMaterial) -> int:
    """Return the tokens of the longest answer within the limits that the prompt states."""
    if isinstance(material, ConsolidationMaterial):
        return _items(1, material.words)
    if isinstance(material, FactMaterial):
        return _items(material.most, material.words)
    if isinstance(material, MemoryMaterial):
        return longest_answer(material.facts) + longest_answer(material.reflections)
    if isinstance(material, DecisionMaterial):
        return _items(len(material.new), material.words)
    if isinstance(material, PropagationMaterial):
        return _items(len(material.reflections), material.words)
    return sum(_items(max(scope.most, 1), scope.words or material.words) for scope in material.scopes)


def _items(number: int, words: int) -> int:
    return number * (words * TOKENS_OF_A_WORD + TOKENS_OF_AN_ITEM)
