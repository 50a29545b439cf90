"""What of a text is other words than before: runs of words, shortened to what has changed. Pure."""

from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from typing import Literal, NamedTuple

Said = Literal["same", "gone", "new", "left_out"]
CONTEXT = 6
"""Words that are kept on either side of a change."""


class Run(NamedTuple):
    """Words that follow each other; of those left out only how many."""

    said: Said
    text: str


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
    return sum(len(one.text.split()) for one in runs if one.said in ("gone", "new"))


def shortened(runs: list[Run], context: int = CONTEXT) -> list[Run]:
    """Long runs of the same words without their middle (or their outer end, at the text's)."""
    return [
        part
        for place, one in enumerate(runs)
        for part in _short(one, context if place else 0, context if place < len(runs) - 1 else 0)
    ]


def _short(one: Run, before: int, after: int) -> Iterator[Run]:
    words = one.text.split()
    left_out = len(words) - before - after
    if one.said != "same" or left_out <= 1:
        yield one
        return
    if before:
        yield Run("same", " ".join(words[:before]))
    yield Run("left_out", str(left_out))
    if after:
        yield Run("same", " ".join(words[-after:]))
