"""How many handlers run at once in one process, and in which turn: stages, partitions and lanes alternate."""

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from eden_memory.stages.finished_offsets import AssignedPartition

L = TypeVar("L")


class Slots:
    """A bounded number of slots; who finds none free is called, in turn, when one is.

    Between two calls either no slot is free or nobody waits.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._free = limit
        self._waiting: dict[Callable[[], None], None] = {}
        self._turn: Callable[[], None] | None = None

    def take(self, when_free: Callable[[], None]) -> bool:
        """Take a slot; return False if it is another's turn, and call `when_free` once later."""
        if self._free > 0 and (not self._waiting or self._turn == when_free):
            self._free -= 1
            self._turn = None
            return True
        self._waiting[when_free] = None
        return False

    def release(self) -> None:
        """Return a slot; waiting callers try in the order in which they came."""
        self._free += 1
        self._offer()

    def resize(self, limit: int) -> None:
        """Change the number of slots; those in use beyond it are not given out again."""
        self._free += limit - self.limit
        self.limit = limit
        self._offer()

    def _offer(self) -> None:
        while self._free > 0 and self._waiting:
            self._turn = next(iter(self._waiting))
            del self._waiting[self._turn]
            self._turn()
            self._turn = None


class Rounds(Generic[L]):
    """A round robin over partitions of a round robin over lanes."""

    def __init__(self) -> None:
        self._lanes: dict[AssignedPartition, deque[L]] = {}
        self._order: deque[AssignedPartition] = deque()

    def __bool__(self) -> bool:
        return bool(self._order)

    def push(self, home: AssignedPartition, lane: L) -> None:
        """Queue a lane behind the others of its partition."""
        lanes = self._lanes.get(home)
        if lanes is None:
            lanes = self._lanes[home] = deque()
            self._order.append(home)
        lanes.append(lane)

    def pop(self) -> L:
        """Return the next lane; an IndexError if none waits."""
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
