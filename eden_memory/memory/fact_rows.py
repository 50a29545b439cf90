"""Arrays with one row for each fact: a new fact is appended, and the last one takes the place of a removed one."""

from collections.abc import Collection, Sequence
from typing import Any

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
