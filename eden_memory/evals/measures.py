"""How good an order of memory, an answer or a decision is, and how sure that is. Pure."""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from math import log2, sqrt
from statistics import stdev
from typing import NamedTuple

K = 10
Z = 1.96
"""Of an interval that holds the true value in 95 of 100 cases."""
_ALONE = re.compile(
    r"[\u0e00-\u0e7f\u1100-\u11ff\u3040-\u30ff\u3130-\u318f\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]"
)
"""Letters of scripts without spaces, or with few: each counts as a word."""
_ARTICLES = frozenset(("a", "an", "the"))


class Quality(NamedTuple):
    """Of one question, or a mean."""

    recall: float
    ndcg: float


def found_quality(ranked: Sequence[frozenset[str]], evidence: frozenset[str], k: int = K) -> Quality:
    """`ranked`: the messages that each unit bears, best first; a message counts where it is first borne.

    The ideal of nDCG bears one message of the evidence after the other: it is the same for every system.
    """
    seen, gain = frozenset[str](), 0.0
    for place, bears in enumerate(ranked[:k]):
        new = bears & evidence - seen
        gain, seen = gain + len(new) / log2(place + 2), seen | new
    ideal = sum(1 / log2(place + 2) for place in range(min(k, len(evidence))))
    return Quality(len(seen) / len(evidence), min(1.0, gain / ideal))


def mean_quality(of: Sequence[Quality]) -> Quality:
    """Every question counts the same."""
    return Quality(mean([each.recall for each in of]), mean([each.ndcg for each in of]))


def mean(values: Sequence[float]) -> float:
    """0 for none."""
    return sum(values) / len(values) if values else 0.0


def newer_above(ranked: Sequence[frozenset[str]], evidence: frozenset[str], outdated: frozenset[str]) -> bool:
    """Return whether the first unit that bears the newer statement stands above all that bear only the older.

    A newer statement that is not found is not above.
    """
    newer = next((place for place, bears in enumerate(ranked) if bears & evidence), None)
    older = next(
        (place for place, bears in enumerate(ranked) if bears & outdated and not bears & evidence), None
    )
    return newer is not None and (older is None or newer < older)


def words(text: str) -> list[str]:
    """Words without case, punctuation and English articles; letters of scripts without spaces stand alone."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    spaced = _ALONE.sub(lambda found: f" {found[0]} ", folded)
    kept = "".join(" " if unicodedata.category(letter)[0] in "PSZC" else letter for letter in spaced)
    return [word for word in kept.split() if word not in _ARTICLES]


def exact(answer: str, accepted: Sequence[str]) -> bool:
    """Return whether an answer is one of the accepted, word for word."""
    return words(answer) in [words(text) for text in accepted]


def contains(text: str, accepted: Sequence[str]) -> bool:
    """Return whether a text holds one of the accepted answers."""
    held = f" {' '.join(words(text))} "
    return any(f" {' '.join(words(answer))} " in held for answer in accepted if words(answer))


def f1(answer: str, accepted: Sequence[str]) -> float:
    """Return the harmonic mean of precision and recall of words, against the nearest accepted answer."""
    return max((_f1(words(answer), words(text)) for text in accepted), default=0.0)


def _f1(given: Sequence[str], wanted: Sequence[str]) -> float:
    same = (Counter(given) & Counter(wanted)).total()
    return 2 * same / (len(given) + len(wanted)) if same else 0.0


def tokens(text: str) -> int:
    """Return about how many tokens a text is: four characters each, letters of scripts without spaces one each.

    The same for all systems, so that budgets are equal; what a provider counts is reported beside.
    """
    alone = len(_ALONE.findall(text))
    return alone + -(-(len(text) - alone) // 4)


class MeasuredShare(NamedTuple):
    """A share with the interval that it may truly have."""

    hits: int
    of: int
    low: float
    high: float

    @property
    def value(self) -> float:
        """0 for none."""
        return self.hits / self.of if self.of else 0.0


def share(count: int, of: int) -> MeasuredShare:
    """Return a share with its 95 % interval (Wilson)."""
    if not of:
        return MeasuredShare(0, 0, 0.0, 1.0)
    middle, spread = (count + Z * Z / 2) / (of + Z * Z), sqrt(count * (of - count) / of + Z * Z / 4)
    around = Z * spread / (of + Z * Z)
    return MeasuredShare(count, of, max(0.0, middle - around), min(1.0, middle + around))


class Difference(NamedTuple):
    """How much better a second memory answers the same questions, with its 95 % interval."""

    mean: float
    low: float
    high: float
    of: int

    @property
    def verdict(self) -> str:
        """In words."""
        if self.low > 0:
            return "better"
        return "worse" if self.high < 0 else "too close to tell with this many questions"


def difference(before: Sequence[float], after: Sequence[float]) -> Difference:
    """Compare question by question."""
    gains = [new - old for old, new in zip(before, after, strict=True)]
    middle = mean(gains)
    around = Z * stdev(gains) / sqrt(len(gains)) if len(gains) > 1 else 1.0
    return Difference(middle, middle - around, middle + around, len(gains))
