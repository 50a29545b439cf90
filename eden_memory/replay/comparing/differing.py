"""How the texts of one scope differ between two memories: the same, in other words, added, lost. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from difflib import SequenceMatcher
from heapq import nlargest
from operator import add, attrgetter
from typing import Literal, NamedTuple, TypeVar

from eden_memory.replay.comparing.matching import Pair
from eden_memory.schemas.scopes import Audience, Scope

T = TypeVar("T", "MemoryText", "ChangedText")
Said = Literal["same", "gone", "new", "left_out"]
CONTEXT = 6
"""Words that are kept on either side of a change."""


class Run(NamedTuple):
    """Words that follow each other; of those left out only how many."""

    said: Said
    text: str


@dataclass(frozen=True, slots=True)
class MemoryText:
    """A fact or reflection; a blob's id is its scope key."""

    id: str
    text: str

    @property
    def words(self) -> int:
        """How many."""
        return len(self.text.split())


@dataclass(frozen=True, slots=True)
class ChangedText:
    """The same in other words."""

    live: MemoryText
    shadow: MemoryText
    similarity: float | None
    """(1 + cosine) / 2; None for blobs, of which a scope has one."""
    runs: tuple[Run, ...]

    @property
    def words(self) -> int:
        """How many are gone or new."""
        return words_changed(self.runs)

    @classmethod
    def of(cls, live: MemoryText, shadow: MemoryText, similarity: float | None = None) -> "ChangedText":
        """With the words that differ."""
        return cls(live, shadow, similarity, tuple(shortened(word_diff(live.text, shadow.text))))


@dataclass(frozen=True, slots=True)
class TextCounts:
    """How many texts."""

    same: int = 0
    changed: int = 0
    added: int = 0
    lost: int = 0

    def __add__(self, other: "TextCounts") -> "TextCounts":
        return TextCounts(*map(add, astuple(self), astuple(other)))

    @property
    def differing(self) -> int:
        """All but the same."""
        return self.changed + self.added + self.lost


@dataclass(frozen=True, slots=True)
class Differing:
    """The texts of one kind in one scope; of each list only the largest differences."""

    counts: TextCounts = field(default_factory=TextCounts)
    words: int = 0
    """How many differ, in all texts."""
    changed: tuple[ChangedText, ...] = ()
    added: tuple[MemoryText, ...] = ()
    lost: tuple[MemoryText, ...] = ()
    by: str | None = None
    """By what they were matched: an embedding model, or `words`; None: there was nothing to match."""


@dataclass(frozen=True, slots=True)
class ScopeSeen:
    """A scope, and whose it is; ids are typed."""

    key: str
    agent_id: str
    audience: Audience = ()
    facts: int = 0
    """Active ones."""

    @property
    def scope(self) -> Scope:
        """The scope itself."""
        return Scope.of_key(self.key, self.agent_id, self.audience)


Texts = Mapping[str, MemoryText]
"""By what they say: equal keys say the very same."""


@dataclass(slots=True)
class ScopeTexts:
    """Texts of one kind in one scope by what they say: equal keys say the very same."""

    by_key: dict[str, MemoryText] = field(default_factory=dict[str, MemoryText])
    models: set[str | None] = field(default_factory=set[str | None])
    """Facts: whose vectors they have; None among them: some have none."""


def differing(
    same: int, live: Texts, shadow: Texts, pairs: Sequence[Pair], by: str, most: int | None
) -> Differing:
    """Compare the texts left once equal ones are set aside, by their pairs; `most` None: all are listed.

    `by`: what they were matched by, if there was anything to match.
    """
    ours, theirs = list(live.values()), list(shadow.values())
    changed = [ChangedText.of(ours[pair.left], theirs[pair.right], pair.similarity) for pair in pairs]
    lost = _without(ours, {pair.left for pair in pairs})
    added = _without(theirs, {pair.right for pair in pairs})
    return Differing(
        counts=TextCounts(same, len(changed), len(added), len(lost)),
        words=sum(difference.words for difference in (*changed, *added, *lost)),
        changed=_largest(changed, most),
        added=_largest(added, most),
        lost=_largest(lost, most),
        by=by if live and shadow else None,
    )


def blobs_differing(scope_key: str, live: str | None, shadow: str | None) -> Differing:
    """Of one scope's blob."""
    if live is None and shadow is None:
        return Differing()
    if live is None:
        told = MemoryText(scope_key, shadow or "")
        return Differing(TextCounts(added=1), told.words, added=(told,))
    if shadow is None:
        told = MemoryText(scope_key, live)
        return Differing(TextCounts(lost=1), told.words, lost=(told,))
    if live.split() == shadow.split():
        return Differing(TextCounts(same=1))
    changed = ChangedText.of(MemoryText(scope_key, live), MemoryText(scope_key, shadow))
    return Differing(TextCounts(changed=1), changed.words, changed=(changed,))


def set_aside(live: Texts, shadow: Texts) -> tuple[int, Texts, Texts]:
    """How many say the very same, and what is left of both, in the order of the keys."""
    common = live.keys() & shadow.keys()
    left, right = ({key: side[key] for key in sorted(side.keys() - common)} for side in (live, shadow))
    return len(common), left, right


def _without(told: Sequence[MemoryText], places: set[int]) -> list[MemoryText]:
    return [text for place, text in enumerate(told) if place not in places]


def _largest(found: Iterable[T], most: int | None) -> tuple[T, ...]:
    """The first of equals comes first."""
    size = attrgetter("words")
    return tuple(sorted(found, key=size, reverse=True) if most is None else nlargest(most, found, key=size))


def word_diff(before: str, after: str) -> list[Run]:
    """Runs of words that are the same, gone or new, in the order in which one reads them."""
    ours, theirs = before.split(), after.split()
    runs: list[Run] = []
    for kind, start, end, begin, stop in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if kind == "equal":
            runs.append(Run("same", " ".join(ours[start:end])))
            continue
        runs += [Run("gone", " ".join(ours[start:end]))] if end > start else []
        runs += [Run("new", " ".join(theirs[begin:stop]))] if stop > begin else []
    return runs


def words_changed(runs: Iterable[Run]) -> int:
    """How many words are gone or new."""
    return sum(len(run.text.split()) for run in runs if run.said in ("gone", "new"))


def shortened(runs: list[Run], context: int = CONTEXT) -> list[Run]:
    """Long runs of the same words without their middle (or their outer end, at the text's)."""
    return [
        part
        for place, run in enumerate(runs)
        for part in _short(run, context if place else 0, context if place < len(runs) - 1 else 0)
    ]


def _short(run: Run, before: int, after: int) -> Iterator[Run]:
    words = run.text.split()
    left_out = len(words) - before - after
    if run.said != "same" or left_out <= 1:
        yield run
        return
    if before:
        yield Run("same", " ".join(words[:before]))
    yield Run("left_out", str(left_out))
    if after:
        yield Run("same", " ".join(words[-after:]))
