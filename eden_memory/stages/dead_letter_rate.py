"""How many of a stage's last records were dead-lettered, so that it can pause itself."""

from collections import deque

WINDOW = 100
AT_LEAST = 10


class DeadRate:
    """The share of dead letters among the last `window` finished records."""

    def __init__(self, share: float, window: int = WINDOW, at_least: int = AT_LEAST) -> None:
        self.share = share
        self._at_least = at_least
        self._last: deque[bool] = deque(maxlen=window)
        self._dead = 0

    def finished(self, dead: bool) -> bool:
        """Note a finished record; True if with it too many are dead (and at least `at_least`)."""
        if len(self._last) == self._last.maxlen:
            self._dead -= self._last[0]
        self._last.append(dead)
        self._dead += dead
        return dead and self._dead >= self._at_least and self._dead > self.share * len(self._last)

    def clear(self) -> None:
        """Forget what was, as after a pause."""
        self._last.clear()
        self._dead = 0
