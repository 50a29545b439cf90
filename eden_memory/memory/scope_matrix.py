"""The vectors of one scope's facts side by side: exact nearest neighbours by cosine. Pure; numpy only."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class FactRows:
    """`arrays` have their facts along the first axis; where they are full, they grow by a share of their length."""

    def __init__(self, *arrays: NDArray[Any], growth: float) -> None:
        self.arrays: Sequence[NDArray[Any]] = arrays
        self._growth = growth
        self.ids: list[str] = []
        self._row_of: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def size(self) -> int:
        """The approximate size in memory, in bytes."""
        return sum(array.nbytes for array in self.arrays) + 100 * len(self.ids)

    def row(self, fact_id: str) -> int | None:
        """Return a fact's row, None if it has none."""
        return self._row_of.get(fact_id)

    def rows(self, fact_ids: Collection[str]) -> list[int]:
        """Return the facts' rows; a fact that had none gets a new one, which the caller fills."""
        for fact_id in fact_ids:
            if fact_id not in self._row_of:
                self._row_of[fact_id] = len(self.ids)
                self.ids.append(fact_id)
        self._grow(len(self.ids))
        return [self._row_of[fact_id] for fact_id in fact_ids]

    def remove(self, fact_id: str) -> None:
        """Remove a fact if it is there; the last row takes its place."""
        row = self._row_of.pop(fact_id, None)
        if row is None:
            return
        last = self.ids.pop()
        if last != fact_id:
            self.ids[row], self._row_of[last] = last, row
            for array in self.arrays:
                array[row] = array[len(self.ids)]

    def _grow(self, count: int) -> None:
        missing = count - len(self.arrays[0])
        if missing > 0:
            more = max(missing, round(count * self._growth), 8)
            self.arrays = [
                np.concatenate((array, np.zeros((more, *array.shape[1:]), array.dtype)))
                for array in self.arrays
            ]


Floats = NDArray[np.float32]
DIGITS = 6
"""Similarities are rounded to this: smaller differences are noise from the order of additions."""


class Hit(NamedTuple):
    """A fact near a vector."""

    fact_id: str
    similarity: float
    """(1 + cosine) / 2."""


class ScopeMatrix:
    """Packed float32 vectors (schemas.fields.pack_vector) by fact id; all have `dimensions` numbers."""

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions
        self._facts = FactRows(np.zeros((8, dimensions), np.float32), np.zeros(8, np.float32), growth=1)

    def __len__(self) -> int:
        return len(self._facts)

    def __contains__(self, fact_id: object) -> bool:
        return isinstance(fact_id, str) and self._facts.row(fact_id) is not None

    @property
    def size(self) -> int:
        """The approximate size in memory, in bytes."""
        return self._facts.size

    def put(self, fact_id: str, vector: bytes) -> bool:
        """Add or replace a vector; return False if its length does not fit."""
        if len(vector) != 4 * self.dimensions:
            self.remove(fact_id)
            return False
        (row,) = self._facts.rows([fact_id])
        vectors, scale = self._facts.arrays
        numbers = np.frombuffer(vector, "<f4")
        length = float(np.linalg.norm(numbers))
        vectors[row] = numbers
        scale[row] = 1.0 / length if length else 0.0
        return True

    def remove(self, fact_id: str) -> None:
        """Remove a fact if it is there."""
        self._facts.remove(fact_id)

    def nearest(self, vectors: Sequence[bytes], most: int, least: float) -> list[list[Hit]]:
        """Return at most `most` facts for each vector, similar by at least `least`, best first, then by id."""
        if not vectors or not self._facts:
            return [[] for _ in vectors]
        rows, scale = (array[: len(self)] for array in self._facts.arrays)
        return best(similarities(vectors, rows, scale), self._facts.ids, most, least)


def similarities(vectors: Sequence[bytes], rows: Floats, scale: Floats) -> Floats:
    """Return (1 + cosine) / 2 of each vector with each row; `scale` is 1 / length of the rows, 0 for a zero row.

    One vector at a time: no pair depends on what else is asked, and no threads of a BLAS library wait for each other
    over products as small as these.
    """
    asked = np.frombuffer(b"".join(vectors), "<f4").reshape(len(vectors), -1)
    lengths = np.linalg.norm(asked, axis=1, keepdims=True)
    unit = asked / np.where(lengths == 0, 1, lengths)
    cosine = np.clip(np.stack([np.vecdot(rows, vector) for vector in unit]) * scale, -1, 1)
    return ((1 + cosine) / 2).astype(np.float32)


def best(similar: Floats, ids: Sequence[str], most: int, least: float) -> list[list[Hit]]:
    """Return the highest values of each line from `least` on; `ids` are the columns'."""
    near = similar >= least
    hits: list[list[Hit]] = [[] for _ in similar]
    for number in np.flatnonzero(near.any(axis=1)).tolist():
        (columns,) = np.nonzero(near[number])
        values = similar[number, columns]
        if len(columns) > most:
            close = values >= np.partition(values, -most)[-most]
            columns, values = columns[close], values[close]
        pairs = zip(columns.tolist(), values.tolist(), strict=True)
        found = [Hit(ids[column], round(value, DIGITS)) for column, value in pairs]
        hits[number] = sorted(found, key=lambda hit: (-hit.similarity, hit.fact_id))[:most]
    return hits


def nearest_before(ids: Sequence[str], vectors: Sequence[bytes], most: int, least: float) -> list[list[Hit]]:
    """Return for each vector the nearest of those before it."""
    if not vectors:
        return []
    rows = np.frombuffer(b"".join(vectors), "<f4").reshape(len(vectors), -1)
    lengths = np.linalg.norm(rows, axis=1)
    scale = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return best(np.tril(similarities(vectors, rows, scale), k=-1), ids, most, max(least, 1e-6))


def matrix_of(vectors: Iterable[tuple[str, bytes]], dimensions: int) -> ScopeMatrix:
    """Return a matrix of these vectors; those of another length are left out."""
    matrix = ScopeMatrix(dimensions)
    for fact_id, vector in vectors:
        matrix.put(fact_id, vector)
    return matrix
