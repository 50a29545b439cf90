"""Match texts of two memories that mean the same: pairs of mutual nearest neighbours, each text in one at most.

A pair is matched if neither text has a nearer one on the other side. What is left over is looked at again, until no
pair is near enough, or for ROUNDS. Vectors stand in nameless temporary files; similarities are made block by block.
"""

from collections import Counter
from collections.abc import Sequence
from math import log1p
from re import findall
from tempfile import TemporaryFile
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from eden_memory.memory.memory_batch import normalised
from eden_memory.search.ranking import unrelated_similarity

Floats = NDArray[np.float32]
BLOCK = 2_048
ROUNDS = 8
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


class Pair(NamedTuple):
    """A text of one side and the text of the other that means the same, by place."""

    left: int
    right: int
    similarity: float
    """(1 + cosine) / 2."""


def vector_rows(count: int, dimensions: int) -> Floats:
    """Return zeros for `count` vectors, at least one, in a temporary file that goes with the array."""
    with TemporaryFile(prefix="eden-vectors-") as file:
        return np.memmap(file, np.float32, "w+", shape=(max(1, count), dimensions))


def put_vector(rows: Floats, place: int, vector: Floats) -> None:
    """Put a vector at its place, made 1 long; one with another number of dimensions is left out."""
    length = float(np.linalg.norm(vector))
    if vector.size == rows.shape[1] and length:
        rows[place] = vector / length


def nearest_pairs(left: Floats, right: Floats, least: float) -> list[Pair]:
    """Return pairs with a similarity of at least `least`, the best first; of equals those with the lower places.

    `left`, `right`: vectors of length 1 (or 0: near to nothing).
    """
    ours, theirs = np.arange(len(left)), np.arange(len(right))
    pairs: list[Pair] = []
    for _ in range(ROUNDS):
        if not (ours.size and theirs.size):
            break
        found, similar, back = _nearest(left, right, ours, theirs)
        places = np.arange(ours.size)
        mutual = (back[found] == places) & (similar >= least)
        if not mutual.any():
            break
        rows = zip(
            ours[mutual].tolist(), theirs[found[mutual]].tolist(), similar[mutual].tolist(), strict=True
        )
        pairs += [Pair(row, column, round(value, DIGITS)) for row, column, value in rows]
        theirs = np.delete(theirs, found[mutual])
        ours = ours[~mutual]
    return sorted(pairs, key=lambda pair: (-pair.similarity, pair.left))


def _nearest(
    left: Floats, right: Floats, ours: NDArray[np.int64], theirs: NDArray[np.int64]
) -> tuple[NDArray[np.int64], Floats, NDArray[np.int64]]:
    """Return, for each left text, its nearest right one and how near it is; for each right text, its nearest left."""
    found, similar = np.zeros(ours.size, np.int64), np.full(ours.size, -1, np.float32)
    back, near = np.zeros(theirs.size, np.int64), np.full(theirs.size, -1, np.float32)
    for start in range(0, ours.size, BLOCK):
        lines = slice(start, start + BLOCK)
        block = left[ours[lines]]
        for begin in range(0, theirs.size, BLOCK):
            columns = slice(begin, begin + BLOCK)
            cosines = np.round((1 + block @ right[theirs[columns]].T) / 2, DIGITS).astype(np.float32)
            best, top = cosines.argmax(1), cosines.max(1)
            nearer = top > similar[lines]
            found[lines] = np.where(nearer, best + begin, found[lines])
            similar[lines] = np.maximum(top, similar[lines])
            best, top = cosines.argmax(0), cosines.max(0)
            nearer = top > near[columns]
            back[columns] = np.where(nearer, best + start, back[columns])
            near[columns] = np.maximum(top, near[columns])
    return found, similar, back


def related(model: str) -> float:
    """Return from which (1 + cosine) / 2 a text is another's new wording, by embedding model (or WORDS)."""
    return RELATED_WORDS if model == WORDS else _between(model, RELATED_SHARE)


def same(model: str) -> float:
    """Return from which (1 + cosine) / 2 a text may be changed for another's sake: paraphrases, not other values."""
    return _between(model, SAME_SHARE)


def _between(model: str, share: float) -> float:
    least = unrelated_similarity(model)
    return round(least + share * (1 - least), 4)


def same_figures(text: str, other: str) -> bool:
    """Tell whether two texts hold the same numbers: vectors hardly tell 2019 from 2021."""
    return Counter(findall(r"\d+", text)) == Counter(findall(r"\d+", other))


def word_vector(text: str) -> Floats:
    """Return a vector of a text's words and their parts of three letters; of any length."""
    words = findall(r"\w+", normalised(text))
    letters = (f" {word} "[place : place + LETTERS] for word in words for place in range(len(word)))
    vector = np.zeros(DIMENSIONS, np.float32)
    for part, times in Counter([*words, *words, *letters]).items():
        number = crc32(part.encode())
        vector[number % DIMENSIONS] += log1p(times) * (1 if number & 0x8000_0000 else -1)
    return vector


def by_words(ours: Sequence[str], theirs: Sequence[str]) -> list[Pair]:
    """Match texts that nobody has vectors of."""
    left, right = vector_rows(len(ours), DIMENSIONS), vector_rows(len(theirs), DIMENSIONS)
    for rows, texts in ((left, ours), (right, theirs)):
        for place, text in enumerate(texts):
            put_vector(rows, place, word_vector(text))
    return nearest_pairs(left[: len(ours)], right[: len(theirs)], related(WORDS))
