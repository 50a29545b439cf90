"""A provider's limit of calls a second: a bucket that holds one second's worth."""

import time
from collections.abc import Callable


class CallRate:
    """Allows so many calls a second; None: any number."""

    def __init__(self, per_second: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._clock = per_second, clock
        self._left = per_second or 0.0
        self._at = clock()

    def allows(self) -> bool:
        """Count a call; False if it is beyond the limit."""
        if self._per_second is None:
            return True
        now = self._clock()
        self._left = min(self._per_second, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
