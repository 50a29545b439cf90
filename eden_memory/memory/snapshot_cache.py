"""The snapshots that this process wrote last: the next batch of a scope need not read them while they are current."""

import sys
from collections.abc import Iterable
from random import Random

from eden_memory.schemas.documents import Snapshot

MOST_BYTES = 32_000_000
SNAPSHOT_BYTES, ENTRY_BYTES = 4_000, 1_300
"""Memory of a snapshot, and of each fact and reflection in it besides its text, roughly."""
OLDEST_SHARE = 1 / 8


class SnapshotCache:
    """Snapshots by scope key, up to `most_bytes` by an estimate."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._snapshots: dict[str, tuple[Snapshot, int]] = {}
        self._bytes, self._most_bytes = 0, most_bytes
        self._dice = Random(0)  # noqa: S311 - nothing secret

    def among(self, keys: Iterable[str]) -> dict[str, Snapshot]:
        """Return the cached snapshots of some scopes, whether or not they are still current."""
        return {key: self._snapshots[key][0] for key in keys if key in self._snapshots}

    def add(self, snapshot: Snapshot) -> None:
        """Add a snapshot that is committed.

        Where there is no room for a scope that is new here, it goes again, and at times the oldest in its place: a
        rebuild takes scopes in turns, so that the oldest is the one whose turn comes next, but one that is never
        written again must go at last. For a scope that was here already, the oldest go.
        """
        before = self._snapshots.pop(snapshot.id, None)
        size = _bytes_of(snapshot)
        self._snapshots[snapshot.id] = snapshot, size
        self._bytes += size - (before[1] if before else 0)
        while self._bytes > self._most_bytes:
            oldest = before is not None or self._dice.random() < OLDEST_SHARE
            gone = next(iter(self._snapshots)) if oldest else next(reversed(self._snapshots))
            self._bytes -= self._snapshots.pop(gone)[1]


def _bytes_of(snapshot: Snapshot) -> int:
    entries = (*snapshot.buffer, *snapshot.recent_facts)
    texts = sum(sys.getsizeof(entry.content) for entry in entries) + sys.getsizeof(snapshot.blob)
    return SNAPSHOT_BYTES + ENTRY_BYTES * len(entries) + texts
