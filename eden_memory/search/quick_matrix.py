"""A scope's vectors, searched quickly: a first pass over numbers of 8 bits, then the exact cosine of the nearest.

A vector of length 1 is kept once more as int8, by its own greatest number: 1/4 of the bytes to read, which is what a
search over many facts takes its time for. The first pass is off by about 0.002; of the facts that it finds nearest,
several times as many as asked for are compared exactly.
"""

from collections.abc import Sequence
from typing import cast

import numkong
import numpy as np
from numpy.typing import NDArray

from eden_memory.memory.scope_matrix import Floats, Hit, ScopeMatrix, best, similarities

FROM = 3_000
"""Facts from which the first pass is worth it."""
POOL_TIMES, POOL_LEAST = 4, 200
"""Compared exactly: so many times what is asked for, and at least so many."""


class QuickMatrix(ScopeMatrix):
    """A ScopeMatrix whose `nearest` reads less; for fewer than `FROM` facts it is the same."""

    def __init__(self, dimensions: int) -> None:
        super().__init__(dimensions)
        self._small: NDArray[np.int8] = np.zeros((0, dimensions), np.int8)
        self._steps: Floats = np.zeros(0, np.float32)
        self._changed: set[int] = set()
        """Rows whose small form is to be made."""

    @property
    def size(self) -> int:
        """Bytes that it takes in memory, about."""
        return super().size + self._small.nbytes + self._steps.nbytes

    def put(self, fact_id: str, vector: bytes) -> bool:
        """Add or replace; False, and the fact is not in, if the vector has another length."""
        put = super().put(fact_id, vector)
        if put:
            self._changed.add(self._row_of[fact_id])
        return put

    def remove(self, fact_id: str) -> None:
        """Take a fact out, if it is in; the last row takes its place."""
        row = self._row_of.get(fact_id)
        super().remove(fact_id)
        if row is not None:
            self._changed.add(row)

    def vector(self, fact_id: str) -> bytes | None:
        """As it was put."""
        row = self._row_of.get(fact_id)
        return None if row is None else self._rows[row].tobytes()

    def nearest(self, vectors: Sequence[bytes], most: int, least: float) -> list[list[Hit]]:
        """For each vector at most `most` facts with a similarity of at least `least`, best first, then by id."""
        if len(self._ids) < FROM or most < 1:
            return super().nearest(vectors, most, least)
        self._shorten()
        return [self._nearest(vector, most, least) for vector in vectors]

    def _nearest(self, vector: bytes, most: int, least: float) -> list[Hit]:
        count = len(self._ids)
        asked, _ = _small(np.frombuffer(vector, "<f4")[None])
        dots = np.asarray(numkong.cdist(asked, self._small[:count], "dot", out_dtype="float32"))[0]
        pool = min(max(POOL_TIMES * most, POOL_LEAST), count)
        rough = dots * self._steps[:count]
        rows = np.sort(np.argpartition(rough, count - pool)[count - pool :])
        similar = similarities([vector], self._rows[rows], self._scale[rows])
        ids = [self._ids[row] for row in cast("list[int]", rows.tolist())]
        return best(similar, ids, most, least)[0]

    def _shorten(self) -> None:
        """Make the small form of what has changed since the last search."""
        if not self._changed:
            return
        if len(self._small) < len(self._rows):
            grown = len(self._rows) - len(self._small)
            self._small = np.concatenate((self._small, np.zeros((grown, self.dimensions), np.int8)))
            self._steps = np.concatenate((self._steps, np.zeros(grown, np.float32)))
        rows = np.fromiter((row for row in self._changed if row < len(self._ids)), np.intp)
        self._changed.clear()
        for part in np.array_split(rows, len(rows) // 10_000 + 1):
            self._small[part], steps = _small(self._rows[part])
            self._steps[part] = steps * self._scale[part]


def _small(rows: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Rows as int8, and what one step of each is worth."""
    steps = np.abs(rows).max(axis=1) / np.float32(127)
    divisors = np.where(steps > 0, steps, 1)[:, None]
    return np.rint(rows / divisors).astype(np.int8), steps.astype(np.float32)
