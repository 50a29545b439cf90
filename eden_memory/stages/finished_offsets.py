"""Finished offsets of one assigned partition, and the end of their contiguous prefix."""

import time
from collections import deque


class AssignedPartition:
    """One assignment of a partition: from the moment it is given until it is revoked.

    Offsets are taken in rising order and finished in any; what may be committed is the contiguous prefix.
    """

    __slots__ = ("_end", "_finished", "_pending", "_since", "bytes", "count", "partition", "revoked", "topic")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.revoked = False
        self.count = 0
        self.bytes = 0
        self._end: int | None = None
        self._pending: deque[int] = deque()
        self._since: deque[float] = deque()
        self._finished: set[int] = set()

    def take(self, offset: int, size: int) -> bool:
        """Record a fetched record; return False if it was fetched before in this assignment."""
        if self._end is not None and offset < self._end:
            return False
        self._pending.append(offset)
        self._since.append(time.monotonic())
        self._end = offset + 1
        self.count += 1
        self.bytes += size
        return True

    def finish(self, offset: int, size: int) -> None:
        """Record that a record is finished; call it once for each offset."""
        self._finished.add(offset)
        self.count -= 1
        self.bytes -= size
        while self._pending and self._pending[0] in self._finished:
            self._finished.discard(self._pending.popleft())
            self._since.popleft()

    @property
    def gap(self) -> int:
        """Finished records that are not committed, because one before them is unfinished."""
        return len(self._finished)

    def oldest(self) -> float:
        """Seconds since the first unfinished record was taken; 0.0 if there is none."""
        return time.monotonic() - self._since[0] if self._since else 0.0

    def committable(self, position: int | None = None) -> int | None:
        """The offset to commit: of the first unfinished record, else behind everything seen.

        `position` is the consumer's, read before this call: with nothing unfinished it may be further than
        the last record, because transaction markers take offsets too. None: nothing was seen.
        """
        if self._pending:
            return self._pending[0]
        known = [offset for offset in (self._end, position) if offset is not None]
        return max(known, default=None)
