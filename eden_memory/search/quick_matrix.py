"""A scope's vectors in few bytes: a first pass over numbers of 8 bits, then a finer comparison of the nearest.

A vector of length 1 is stored as int8, by its own greatest number, and what int8 leaves over as 2, 4 or 8 bits more.
The first pass reads only the int8, and is off by about 0.002; of the facts that it finds nearest, several times as
many as asked for are compared by all their bits.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import numkong
import numpy as np
from numpy.typing import NDArray

from eden_memory.memory.fact_rows import FactRows
from eden_memory.memory.scope_matrix import Floats, Hit, best, similarities

POOL_TIMES, POOL_LEAST = 4, 200
"""Compared by all bits: so many times what is asked for, and at least so many."""
REST_BYTES = 192
"""Of a vector beside its int8, about: the more dimensions it has, the less each number's error matters."""
ENCODING = "int8+rest"
"""Name of this form of vectors, where they are stored."""
Levels = NDArray[np.uint8]


class QuickMatrix:
    """Packed float32 vectors (schemas.fields.pack_vector) by fact id; all have `dimensions` numbers.

    There is room for so many facts from the start; for more, all are copied now and then.
    """

    def __init__(self, dimensions: int, room: int = 0) -> None:
        self.dimensions = dimensions
        bits = next((bits for bits in (8, 4) if bits * dimensions <= 8 * REST_BYTES), 2)
        self._shifts, self._most = range(0, 8, bits), 2**bits - 2
        packed = -(-dimensions * bits // 8)
        coarse, rest = np.zeros((room, dimensions), np.int8), np.zeros((room, packed), np.uint8)
        self._facts = FactRows(coarse, rest, np.zeros(room, np.float32), growth=1 / 32)

    def __len__(self) -> int:
        return len(self._facts)

    @property
    def size(self) -> int:
        """Bytes that it takes in memory, about."""
        return self._facts.size

    def put(self, vectors: Mapping[str, bytes]) -> None:
        """Add or replace; a fact whose vector has another length is taken out."""
        for fact_id in [fact_id for fact_id, vector in vectors.items() if not self.fits(vector)]:
            self._facts.remove(fact_id)
        fitting = {fact_id: vector for fact_id, vector in vectors.items() if self.fits(vector)}
        rows, numbers = self._facts.rows(fitting), np.frombuffer(b"".join(fitting.values()), "<f4")
        for array, values in zip(
            self._facts.arrays, self._shortened(numbers.reshape(-1, self.dimensions)), strict=True
        ):
            array[rows] = values

    def stored(self) -> tuple[list[str], list[bytes]]:
        """Return all fact ids, and their numbers as :meth:`restore` takes them."""
        return [*self._facts.ids], [array[: len(self)].tobytes() for array in self._facts.arrays]

    def restore(self, fact_ids: Sequence[str], numbers: Sequence[bytes]) -> None:
        """Add or replace facts by what `stored` has returned for the same number of dimensions."""
        rows = self._facts.rows(fact_ids)
        for array, packed in zip(self._facts.arrays, numbers, strict=True):
            array[rows] = np.frombuffer(packed, array.dtype).reshape(len(rows), *array.shape[1:])

    def fits(self, vector: bytes) -> bool:
        """Whether a vector has as many numbers as those here."""
        return len(vector) == 4 * self.dimensions

    def remove(self, fact_id: str) -> None:
        """Take a fact out, if it is in."""
        self._facts.remove(fact_id)

    def vectors(self, fact_ids: Iterable[str]) -> dict[str, bytes]:
        """Return the facts' vectors at length 1, nearly as they were put, without those that are not in."""
        rows = {fact_id: row for fact_id in fact_ids if (row := self._facts.row(fact_id)) is not None}
        return {
            fact_id: vector.tobytes()
            for fact_id, vector in zip(rows, self._restored([*rows.values()]), strict=True)
        }

    def nearest(self, vectors: Sequence[bytes], most: int, least: float) -> list[list[Hit]]:
        """For each vector at most `most` facts with a similarity of at least `least`, best first, then by id."""
        if not self._facts or most < 1:
            return [[] for _ in vectors]
        return [self._nearest(vector, most, least) for vector in vectors]

    def _nearest(self, vector: bytes, most: int, least: float) -> list[Hit]:
        rows = self._likely(vector, max(POOL_TIMES * most, POOL_LEAST))
        found = self._restored(rows)
        lengths = np.linalg.norm(found, axis=1)
        scale = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
        return best(
            similarities([vector], found, scale), [self._facts.ids[row] for row in rows], most, least
        )[0]

    def _likely(self, vector: bytes, pool: int) -> list[int]:
        """Return the rows that the first pass finds nearest."""
        count, (coarse, _, steps) = len(self), self._facts.arrays
        if count <= pool:
            return list(range(count))
        asked, _, _ = self._shortened(np.frombuffer(vector, "<f4")[None])
        rough = (
            np.asarray(numkong.cdist(asked, coarse[:count], "dot", out_dtype="float32"))[0] * steps[:count]
        )
        return cast("list[int]", np.sort(np.argpartition(rough, count - pool)[count - pool :]).tolist())

    def _shortened(self, rows: Floats) -> tuple[NDArray[np.int8], Levels, Floats]:
        """Return rows as int8, what is left of each number, and what one step of each row is worth."""
        lengths = np.linalg.norm(rows, axis=1)
        steps, scaled = _steps(rows), rows.copy()
        scaled /= np.where(steps > 0, steps, 1)[:, None]
        coarse = np.rint(scaled)
        scaled -= coarse
        scaled += np.float32(0.5)
        scaled *= np.float32(self._most)
        levels = np.rint(scaled).astype(np.uint8)
        units = np.divide(steps, lengths, out=np.zeros_like(steps), where=lengths > 0)
        return coarse.astype(np.int8), self._packed(levels), units

    def _restored(self, rows: Sequence[int]) -> Floats:
        coarse, packed, steps = (array[rows] for array in self._facts.arrays)
        numbers = self._unpacked(packed).astype(np.float32)
        numbers /= np.float32(self._most)
        numbers -= np.float32(0.5)
        numbers += coarse
        numbers *= steps[:, None]
        return numbers

    def _packed(self, levels: Levels) -> Levels:
        """Several numbers in a byte: the first bits of all bytes are the first numbers, and so on."""
        packed = np.zeros((len(levels), self._facts.arrays[1].shape[1]), np.uint8)
        for number, shift in enumerate(self._shifts):
            part = levels[:, number * packed.shape[1] :][:, : packed.shape[1]]
            packed[:, : part.shape[1]] |= part << np.uint8(shift)
        return packed

    def _unpacked(self, packed: Levels) -> Levels:
        parts = [(packed >> np.uint8(shift)) & np.uint8(self._most + 1) for shift in self._shifts]
        return np.concatenate(parts, axis=1)[:, : self.dimensions]


def _steps(rows: Floats) -> Floats:
    """Return what one step of each row's int8 is worth."""
    return np.maximum(rows.max(axis=1), -rows.min(axis=1)) / np.float32(127)
