"""Gives partitions their turn one after the other, and within a partition its lanes."""

from collections import deque
from typing import Generic, TypeVar

from eden_memory.stages.finished_offsets import AssignedPartition

L = TypeVar("L")


class Rounds(Generic[L]):
    """A round robin over partitions of a round robin over lanes."""

    def __init__(self) -> None:
        self._lanes: dict[AssignedPartition, deque[L]] = {}
        self._order: deque[AssignedPartition] = deque()

    def __bool__(self) -> bool:
        return bool(self._order)

    def push(self, home: AssignedPartition, lane: L) -> None:
        """Let a lane wait for its turn, behind the others of its partition."""
        lanes = self._lanes.get(home)
        if lanes is None:
            lanes = self._lanes[home] = deque()
            self._order.append(home)
        lanes.append(lane)

    def pop(self) -> L:
        """The next lane; an IndexError if none waits."""
        home = self._order.popleft()
        lanes = self._lanes[home]
        lane = lanes.popleft()
        if lanes:
            self._order.append(home)
        else:
            del self._lanes[home]
        return lane

    def clear(self) -> None:
        """Forget all turns."""
        self._lanes.clear()
        self._order.clear()
