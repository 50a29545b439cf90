"""Vectors beside each other in a temporary file: as many as there are, little of them in memory."""

import os
import tempfile

import numpy as np

from eden_memory.replay.comparing.matching import Floats, Places

MOST_HELD = 32_000_000
"""Bytes up to which they are kept in memory."""


class VectorFile:
    """eden_memory.replay.comparing.matching.Rows; a vector that was not put is 0. Nameless, and gone once closed."""

    def __init__(self, count: int, dimensions: int) -> None:
        self._count, self._dimensions = count, dimensions
        small = 4 * count * dimensions <= MOST_HELD
        self._held: Floats | None = np.zeros((count, dimensions), np.float32) if small else None
        self._file = None if small else tempfile.TemporaryFile(prefix="eden-vectors-")  # noqa: SIM115 - closed with this
        if self._file is not None:
            self._file.truncate(4 * count * dimensions)

    def __enter__(self) -> "VectorFile":
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the file."""
        if self._file is not None:
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
        if self._held is not None:
            self._held[place] = unit
        else:
            os.pwrite(self._descriptor, unit.tobytes(), place * 4 * self._dimensions)
        return True

    def take(self, places: Places) -> Floats:
        """Those at these ascending places."""
        if self._held is not None:
            return self._held[places]
        rows = np.empty((len(places), self._dimensions), np.float32)
        if len(places) and places[-1] - places[0] + 1 == len(places):
            self._read(rows, int(places[0]))
            return rows
        for row, place in zip(rows, places.tolist(), strict=True):
            self._read(row, place)
        return rows

    def _read(self, into: Floats, place: int) -> None:
        os.preadv(self._descriptor, [into.data.cast("B")], place * 4 * self._dimensions)

    @property
    def _descriptor(self) -> int:
        assert self._file is not None
        return self._file.fileno()
