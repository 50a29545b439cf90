"""How many handlers run at once in one process, shared in turn between its stages."""

from collections.abc import Callable


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
        """Take a slot; False if it is another's turn, and `when_free` is called once later."""
        if self._free > 0 and (not self._waiting or self._turn == when_free):
            self._free -= 1
            self._turn = None
            return True
        self._waiting[when_free] = None
        return False

    def release(self) -> None:
        """Give a slot back; those who wait try in the order in which they came."""
        self._free += 1
        self._offer()

    def resize(self, limit: int) -> None:
        """Another number of slots from now on; those taken beyond it are not given again."""
        self._free += limit - self.limit
        self.limit = limit
        self._offer()

    def _offer(self) -> None:
        while self._free > 0 and self._waiting:
            self._turn = next(iter(self._waiting))
            del self._waiting[self._turn]
            self._turn()
            self._turn = None
