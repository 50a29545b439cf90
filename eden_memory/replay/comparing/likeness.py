"""When two texts say the same: thresholds by embedding model, and vectors of words in their place. Pure."""

from collections import Counter
from collections.abc import Sequence
from math import log1p
from re import findall
from zlib import crc32

import numpy as np

from eden_memory.memory.fact_hash import normalised
from eden_memory.replay.comparing.matching import Floats
from eden_memory.search.ranking import unrelated_similarity

WORDS = "words"
"""In the place of an embedding model's name: texts are compared by their words."""
RELATED_SHARE, SAME_SHARE = 0.65, 0.86
"""Of the way from unrelated texts to equal ones: 0.825 and 0.93 with the local model, on which both were measured."""
RELATED_WORDS = 0.75
"""(1 + cosine) / 2 of vectors of words."""
DIMENSIONS = 512
LETTERS = 3


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


def word_vectors(texts: Sequence[str]) -> Floats:
    """A vector of length 1 for each text (0 for an empty one), of its words and their parts of three letters."""
    rows = np.zeros((len(texts), DIMENSIONS), np.float32)
    for row, text in zip(rows, texts, strict=True):
        for part, times in _parts(text).items():
            number = crc32(part.encode())
            row[number % DIMENSIONS] += log1p(times) * (1 if number & 0x8000_0000 else -1)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(lengths == 0, 1, lengths)).astype(np.float32)


def _parts(text: str) -> Counter[str]:
    words = findall(r"\w+", normalised(text))
    letters = (f" {word} "[place : place + LETTERS] for word in words for place in range(len(word)))
    return Counter([*words, *words, *letters])
