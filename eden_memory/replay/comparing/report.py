"""The report on two memories: how the texts of each scope differ, word by word, the largest differences first."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from heapq import heappush, heappushpop, nlargest
from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from eden_memory.replay.comparing.matching import Pair
from eden_memory.replay.user_edits.user_edits import AppliedEdits
from eden_memory.usage.usage_store import UsageSum, together

Kind = Literal["facts", "reflections", "blobs"]
KINDS: tuple[Kind, ...] = ("facts", "reflections", "blobs")
BothSpent = tuple[UsageSum, UsageSum]
"""What live memory and the shadow cost."""
CONTEXT = 6
"""Words that are kept on either side of a change."""


class ReportPart(BaseModel):
    """A part of the report, as `--json` prints it."""

    model_config = ConfigDict(frozen=True)


class Run(NamedTuple):
    """Words that follow each other; of those left out only how many."""

    said: Literal["same", "gone", "new", "left_out"]
    text: str


class MemoryText(ReportPart):
    """A fact or reflection; a blob's id is its scope key."""

    id: str
    text: str

    @property
    def words(self) -> int:
        """Count its words."""
        return len(self.text.split())


class ChangedText(ReportPart):
    """The same in other words."""

    live: MemoryText
    shadow: MemoryText
    similarity: float | None = None
    """(1 + cosine) / 2; None for blobs, of which a scope has one."""
    runs: tuple[Run, ...] = Field(serialization_alias="words")

    @property
    def words(self) -> int:
        """Count the words that are gone or new."""
        return words_changed(self.runs)

    @classmethod
    def of(cls, live: MemoryText, shadow: MemoryText, similarity: float | None = None) -> "ChangedText":
        """Return it with the words that differ."""
        runs = tuple(shortened(word_diff(live.text, shadow.text)))
        return cls(live=live, shadow=shadow, similarity=similarity, runs=runs)


class TextCounts(ReportPart):
    """How many texts."""

    same: int = 0
    changed: int = 0
    added: int = 0
    lost: int = 0

    def __add__(self, other: "TextCounts") -> "TextCounts":
        return TextCounts(**{name: count + getattr(other, name) for name, count in self})

    @property
    def differing(self) -> int:
        """Count all but the same."""
        return self.changed + self.added + self.lost


class Differing(ReportPart):
    """The texts of one kind in one scope; of each list only the largest differences."""

    counts: TextCounts = TextCounts()
    words: int = Field(default=0, serialization_alias="words_different")
    """How many differ, in all texts."""
    matched_by: str | None = None
    """An embedding model, or `words`; None: there was nothing to match."""
    changed: tuple[ChangedText, ...] = ()
    added: tuple[MemoryText, ...] = ()
    lost: tuple[MemoryText, ...] = ()


class ScopeDiffers(ReportPart):
    """One scope of both memories."""

    scope_key: str
    words: int = Field(serialization_alias="words_different")
    """How many differ: by this the largest differences come first."""
    facts: Differing
    reflections: Differing
    blobs: Differing

    @classmethod
    def of_kinds(
        cls, scope_key: str, facts: Differing, reflections: Differing, blobs: Differing
    ) -> "ScopeDiffers":
        """Return a scope, with all its words."""
        words = facts.words + reflections.words + blobs.words
        return cls(scope_key=scope_key, words=words, facts=facts, reflections=reflections, blobs=blobs)

    def of(self, kind: Kind) -> Differing:
        """Return its facts, reflections or blobs."""
        return getattr(self, kind)

    @property
    def differing(self) -> int:
        """Count the texts that are not the same."""
        return sum(self.of(kind).counts.differing for kind in KINDS)


class MemoryReport(BaseModel):
    """Two memories compared; `scopes` are the `most` that differ most (None: all that differ)."""

    live: str
    shadow: str
    most: int | None = Field(exclude=True)
    complete: bool = True
    """Whether the shadow holds all there was when it last looked."""
    scopes_compared: int = 0
    scopes_different: int = 0
    counts: dict[Kind, TextCounts] = {kind: TextCounts() for kind in KINDS}
    matched_by: set[str] = set()
    spent: dict[str, BothSpent] = Field(default={}, exclude=True)
    """By stage."""
    reused_answers: int = 0
    """Answers that the shadow's formation found paid for already."""
    own: AppliedEdits | None = Field(default=None, exclude=True)
    """People's own changes; None: they were not looked at."""
    _scopes: list[tuple[int, int, ScopeDiffers]] = PrivateAttr(default=[])

    def take(self, scope: ScopeDiffers) -> None:
        """Add a scope."""
        self.scopes_compared += 1
        for kind in KINDS:
            self.counts[kind] += scope.of(kind).counts
        if not scope.differing:
            return
        self.scopes_different += 1
        self.matched_by |= {by for kind in KINDS if (by := scope.of(kind).matched_by) is not None}
        ranked = scope.words, -self.scopes_compared, scope
        if self.most is None or len(self._scopes) < self.most:
            heappush(self._scopes, ranked)
        elif self.most:
            heappushpop(self._scopes, ranked)

    @property
    def scopes(self) -> list[ScopeDiffers]:
        """The largest differences first."""
        return [scope for _, _, scope in sorted(self._scopes, key=lambda ranked: ranked[:2], reverse=True)]

    @property
    def equal(self) -> bool:
        """Whether both say the same."""
        return not self.scopes_different

    @property
    def together(self) -> BothSpent:
        """What all stages cost."""
        live, shadow = zip(*self.spent.values(), strict=True) if self.spent else ((), ())
        return together(live), together(shadow)

    def json_object(self) -> dict[str, Any]:
        """Return the object that docs/replay.md describes."""
        return self.model_dump(mode="json", by_alias=True) | {
            "equal": self.equal,
            "matched_by": sorted(self.matched_by),
            "spent": {stage: _spent_object(spent) for stage, spent in self.spent.items()},
            "spent_together": _spent_object(self.together),
            "own_changes": None if self.own is None else self.own.json_object(self.most),
            "scopes": [scope.model_dump(mode="json", by_alias=True) for scope in self.scopes],
        }


def _spent_object(spent: BothSpent) -> dict[str, Any]:
    return {
        side: {**of.counts, "cost_usd": None if of.known_usd is None else str(of.known_usd)}
        for side, of in zip(("live", "shadow"), spent, strict=True)
    }


Texts = Mapping[str, MemoryText]
"""By what they say: equal keys say the very same."""


def set_aside(live: Texts, shadow: Texts) -> tuple[int, Sequence[MemoryText], Sequence[MemoryText]]:
    """Return how many say the very same, and what is left of both, in the order of the keys."""
    common = live.keys() & shadow.keys()
    left, right = ([side[key] for key in sorted(side.keys() - common)] for side in (live, shadow))
    return len(common), left, right


def differing(
    same: int,
    ours: Sequence[MemoryText],
    theirs: Sequence[MemoryText],
    pairs: Sequence[Pair],
    by: str | None,
    most: int | None,
) -> Differing:
    """Compare the texts left once equal ones are set aside, by their pairs; `most` None: all are listed."""
    changed = [ChangedText.of(ours[pair.left], theirs[pair.right], pair.similarity) for pair in pairs]
    paired, met = {pair.left for pair in pairs}, {pair.right for pair in pairs}
    lost = [text for place, text in enumerate(ours) if place not in paired]
    added = [text for place, text in enumerate(theirs) if place not in met]
    return Differing(
        counts=TextCounts(same=same, changed=len(changed), added=len(added), lost=len(lost)),
        words=sum(difference.words for difference in (*changed, *added, *lost)),
        changed=_largest(changed, most),
        added=_largest(added, most),
        lost=_largest(lost, most),
        matched_by=by if ours and theirs else None,
    )


def blobs_differing(scope_key: str, live: str | None, shadow: str | None) -> Differing:
    """Compare one scope's blob."""
    if live is not None and shadow is not None and live.split() == shadow.split():
        return Differing(counts=TextCounts(same=1))
    ours, theirs = ([] if text is None else [MemoryText(id=scope_key, text=text)] for text in (live, shadow))
    if ours and theirs:
        changed = ChangedText.of(ours[0], theirs[0])
        return Differing(counts=TextCounts(changed=1), words=changed.words, changed=(changed,))
    return differing(0, ours, theirs, (), None, None)


T = TypeVar("T", MemoryText, ChangedText)


def _largest(found: Iterable[T], most: int | None) -> tuple[T, ...]:
    """The first of equals comes first."""
    size = attrgetter("words")
    return tuple(sorted(found, key=size, reverse=True) if most is None else nlargest(most, found, key=size))


def word_diff(before: str, after: str) -> list[Run]:
    """Return runs of words that are the same, gone or new, in the order in which one reads them."""
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
    """Return how many words are gone or new."""
    return sum(len(run.text.split()) for run in runs if run.said in ("gone", "new"))


def shortened(runs: list[Run], context: int = CONTEXT) -> list[Run]:
    """Return long runs of the same words without their middle (or their outer end, at the text's)."""
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
