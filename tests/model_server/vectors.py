"""Deterministic vectors: the sum of a fixed random direction per word, so that texts with the same words are near."""

import hashlib
import re
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

WORDS = re.compile(r"\w+")


def vector_of(text: str, dimensions: int) -> NDArray[np.float32]:
    """A vector of length 1."""
    total = np.zeros(dimensions, dtype=np.float32)
    for word in WORDS.findall(text.lower()) or [text]:
        total += _direction(word, dimensions)
    length = float(np.linalg.norm(total))
    return total / length if length else _direction("", dimensions) / np.float32(dimensions**0.5)


@lru_cache(maxsize=50_000)
def _direction(word: str, dimensions: int) -> NDArray[np.float32]:
    digest = hashlib.shake_128(word.encode()).digest((dimensions + 7) // 8)
    bits = np.unpackbits(np.frombuffer(digest, dtype=np.uint8))[:dimensions]
    return bits.astype(np.float32) * 2 - 1
