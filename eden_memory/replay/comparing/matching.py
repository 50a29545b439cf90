"""Which texts of two memories mean the same: pairs, best first, each text in one at most. No store; numpy only.

The most similar pair of all is matched first, then the most similar of the rest, down to a least similarity. That is
what a comparison of everything with everything gives, but done in blocks: little is held however much there is.
"""

import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from math import log1p
from re import findall
from typing import NamedTuple, Self
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from eden_memory.memory.fact_hash import normalised
from eden_memory.search.ranking import unrelated_similarity

Floats = NDArray[np.float32]
Places = NDArray[np.int64]
BLOCK = 2_048
MOST_NEAR = 8
"""Candidates of one text that are held; who has lost them all to others is compared again."""
DIGITS = 4
"""Similarities are rounded: what is beyond is noise of the order in which products are added up."""


WORDS = "words"
"""In the place of an embedding model's name: texts are compared by their words."""
RELATED_SHARE, SAME_SHARE = 0.65, 0.86
"""Of the way from unrelated texts to equal ones: 0.825 and 0.93 with the local model, on which both were measured."""
RELATED_WORDS = 0.75
"""(1 + cosine) / 2 of vectors of words."""
DIMENSIONS = 512
LETTERS = 3


class VectorFile:
    """Vectors of length 1 by place, in a nameless temporary file; a vector that was not put is 0."""

    def __init__(self, count: int, dimensions: int) -> None:
        self._count, self._dimensions = count, dimensions
        self._file = tempfile.TemporaryFile(prefix="eden-vectors-")  # noqa: SIM115 - closed with this
        self._file.truncate(4 * count * dimensions)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the file."""
        self._file.close()

    def __len__(self) -> int:
        return self._count

    def put(self, place: int, packed: bytes) -> bool:
        """Take in a packed vector, made 1 long; False, and it is not in, if it has another number of dimensions."""
        if len(packed) != 4 * self._dimensions:
            return False
        vector = np.frombuffer(packed, "<f4")
        length = float(np.linalg.norm(vector))
        unit = (vector / length if length else vector).astype(np.float32)
        os.pwrite(self._file.fileno(), unit.tobytes(), place * 4 * self._dimensions)
        return True

    def take(self, places: Places) -> Floats:
        """Those at these ascending places."""
        rows = np.empty((len(places), self._dimensions), np.float32)
        if len(places) and places[-1] - places[0] + 1 == len(places):
            self._read(rows, int(places[0]))
            return rows
        for row, place in zip(rows, places.tolist(), strict=True):
            self._read(row, place)
        return rows

    def _read(self, into: Floats, place: int) -> None:
        os.preadv(self._file.fileno(), [into.data.cast("B")], place * 4 * self._dimensions)


class Pair(NamedTuple):
    """A text of one side and the text of the other that means the same, by place."""

    left: int
    right: int
    similarity: float
    """(1 + cosine) / 2."""


class _Candidate(NamedTuple):
    """Compared as it stands: the most similar first, then by the ranks of both keys, whichever side they are of."""

    distance: float
    lower: int
    higher: int
    left: int
    right: int
    look: int
    """The how many-th look at the left text found it; only those of the last one count."""


def best_first(
    left: VectorFile,
    right: VectorFile,
    keys: tuple[Sequence[str], Sequence[str]],
    least: float,
    *,
    near: int = MOST_NEAR,
) -> list[Pair]:
    """Pairs with a similarity of at least `least`, the best first.

    `keys` name the texts of both sides: they decide between pairs that are as similar, whichever side is which (but
    where more than `near` texts are exactly as similar to one, those with the lowest keys have their turn first).
    """
    return _Matching(left, right, keys, least, near).pairs()


class _Matching:
    def __init__(
        self,
        left: VectorFile,
        right: VectorFile,
        keys: tuple[Sequence[str], Sequence[str]],
        least: float,
        near: int,
    ) -> None:
        self._left, self._right = left, right
        rank = {key: place for place, key in enumerate(sorted({*keys[0], *keys[1]}))}
        self._ranks = tuple(np.array([rank[key] for key in side], np.int64) for side in keys)
        self._least, self._near = least, near
        self._looks: dict[int, int] = {}
        self._held: dict[int, int] = {}
        """Of the left texts without a partner: how many of their candidates have not had their turn."""
        self._more: set[int] = set()
        """Left texts that have more candidates than are held."""
        self._taken = np.zeros(len(right), bool)

    def pairs(self) -> list[Pair]:
        again: list[_Candidate] = []
        first = self._look(np.arange(len(self._left)), self._near, 0)
        pairs: list[Pair] = []
        for candidate in _in_order(first, again):
            if candidate.left not in self._held or candidate.look != self._looks.get(candidate.left, 0):
                continue
            self._held[candidate.left] -= 1
            if not self._taken[candidate.right]:
                del self._held[candidate.left]
                self._taken[candidate.right] = True
                pairs.append(Pair(candidate.left, candidate.right, round(-candidate.distance, DIGITS)))
            elif not self._held[candidate.left] and candidate.left in self._more:
                for found in self._look_again():
                    heappush(again, found)
        return pairs

    def _look_again(self) -> Iterator[_Candidate]:
        """At all texts that have few candidates left and may have more: what they lost is not offered again."""
        few = [left for left in self._more if self._held.get(left, self._near) <= self._near // 2]
        for left in few:
            self._looks[left] = self._looks.get(left, 0) + 1
        look = max(self._looks[left] for left in few)
        for left in few:
            self._looks[left] = look
        return self._look(np.array(sorted(few), np.int64), self._near << look, look)

    def _look(self, lefts: Places, near: int, look: int) -> Iterator[_Candidate]:
        """The nearest free texts of each, all of them in order."""
        rights = np.flatnonzero(~self._taken)
        found = [self._nearest(part, rights, near) for part in _blocks(lefts)]
        if not found:
            return iter(())
        ours, theirs, similar = (np.concatenate(part) for part in zip(*found, strict=True))
        for left in lefts.tolist():
            self._held[left] = 0
        for left, count in zip(*np.unique(ours, return_counts=True), strict=True):
            self._held[int(left)] = int(count)
        left_ranks, right_ranks = self._ranks[0][ours], self._ranks[1][theirs]
        columns = (
            -similar,
            np.minimum(left_ranks, right_ranks),
            np.maximum(left_ranks, right_ranks),
            ours,
            theirs,
        )
        order = np.lexsort(columns[::-1])
        return _candidates([column[order] for column in columns], look)

    def _nearest(self, lefts: Places, rights: Places, near: int) -> tuple[Places, Places, Floats]:
        """Of one block."""
        rows = self._left.take(lefts)
        lines, places = np.empty(0, np.int64), np.empty(0, np.int64)
        values: Floats = np.empty(0, np.float32)
        self._more.difference_update(lefts.tolist())
        for part in _blocks(rights):
            similar: Floats = np.round((1 + rows @ self._right.take(part).T) / 2, DIGITS).astype(np.float32)
            found, columns = np.nonzero(similar >= self._least)
            lines = np.concatenate((lines, found))
            places = np.concatenate((places, part[columns]))
            values = np.concatenate((values, similar[found, columns]))
            order = np.lexsort((self._ranks[1][places], -values, lines))
            lines, places, values = lines[order], places[order], values[order]
            kept = np.arange(len(lines)) - np.searchsorted(lines, lines) < near
            self._more.update(lefts[lines[~kept]].tolist())
            lines, places, values = lines[kept], places[kept], values[kept]
        return lefts[lines], places, values


def _in_order(first: Iterable[_Candidate], again: list[_Candidate]) -> Iterator[_Candidate]:
    """Both in one order; `again` is a heap that grows meanwhile, by nothing better than what has been given."""
    ahead = next(iterator := iter(first), None)
    while ahead is not None or again:
        if ahead is None or (again and again[0] < ahead):
            yield heappop(again)
        else:
            yield ahead
            ahead = next(iterator, None)


def _candidates(columns: Sequence[NDArray[np.float32] | Places], look: int) -> Iterator[_Candidate]:
    """Made one by one: as objects all of them would take much more room than as columns."""
    for start in range(0, len(columns[0]), BLOCK):
        parts = [column[start : start + BLOCK].tolist() for column in columns]
        for values in zip(*parts, strict=True):
            distance, lower, higher, left, right = values
            yield _Candidate(distance, lower, higher, left, right, look)


def _blocks(places: Places) -> Iterator[Places]:
    return (places[start : start + BLOCK] for start in range(0, len(places), BLOCK))


def related(model: str) -> float:
    """(1 + cosine) / 2 from which one text is shown as another's new wording, by embedding model (or WORDS)."""
    return RELATED_WORDS if model == WORDS else _between(model, RELATED_SHARE)


def same(model: str) -> float:
    """(1 + cosine) / 2 from which a text may be changed for another's sake: paraphrases, not other values."""
    return _between(model, SAME_SHARE)


def _between(model: str, share: float) -> float:
    least = unrelated_similarity(model)
    return round(least + share * (1 - least), 4)


def same_figures(text: str, other: str) -> bool:
    """Whether two texts hold the same numbers: vectors hardly tell 2019 from 2021."""
    return Counter(findall(r"\d+", text)) == Counter(findall(r"\d+", other))


def word_vector(text: str) -> Floats:
    """A vector of a text's words and their parts of three letters; of any length."""
    vector = np.zeros(DIMENSIONS, np.float32)
    for part, times in _parts(text).items():
        number = crc32(part.encode())
        vector[number % DIMENSIONS] += log1p(times) * (1 if number & 0x8000_0000 else -1)
    return vector


def _parts(text: str) -> Counter[str]:
    words = findall(r"\w+", normalised(text))
    letters = (f" {word} "[place : place + LETTERS] for word in words for place in range(len(word)))
    return Counter([*words, *words, *letters])
