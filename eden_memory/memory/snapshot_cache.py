"""The snapshots that this process wrote last: the next batch of a scope begins from them, and reads none."""

import random
from collections.abc import Iterable

from eden_memory.schemas.documents import Snapshot

MOST_BYTES = 32_000_000
SNAPSHOT_BYTES, ENTRY_BYTES = 4_000, 1_400
"""Memory of a snapshot, and of each fact and reflection in it, roughly."""
OLDEST_SHARE = 1 / 8


class SnapshotCache:
    """Snapshots by scope key, up to `most_bytes` by an estimate."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._snapshots: dict[str, Snapshot] = {}
        self._bytes, self._most_bytes = 0, most_bytes

    def among(self, keys: Iterable[str]) -> dict[str, Snapshot]:
        """Return those of some scopes that are cached."""
        return {key: self._snapshots[key] for key in keys if key in self._snapshots}

    def add(self, snapshot: Snapshot) -> None:
        """Add a snapshot that is committed, unless a later revision is there.

        Where there is no room, the newest goes, and at times the oldest: a rebuild takes scopes in turns, so that
        the oldest is the one whose turn comes next, but one that is never written again must go at last.
        """
        cached = self._snapshots.get(snapshot.id)
        if cached is not None and cached.revision > snapshot.revision:
            return
        self.drop([snapshot.id])
        self._snapshots[snapshot.id] = snapshot
        self._bytes += _bytes_of(snapshot)
        while self._bytes > self._most_bytes:
            oldest = random.random() < OLDEST_SHARE  # noqa: S311 - nothing secret
            self.drop([next(iter(self._snapshots) if oldest else reversed(self._snapshots))])

    def drop(self, keys: Iterable[str]) -> None:
        """Drop the snapshots of some scopes."""
        for key in keys:
            if (snapshot := self._snapshots.pop(key, None)) is not None:
                self._bytes -= _bytes_of(snapshot)


def _bytes_of(snapshot: Snapshot) -> int:
    entries = len(snapshot.buffer) + len(snapshot.recent_facts)
    return SNAPSHOT_BYTES + ENTRY_BYTES * entries + len(snapshot.blob or "")
