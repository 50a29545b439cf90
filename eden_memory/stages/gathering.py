"""Waiting for more records where nothing depends on them yet: a batch of a few costs as much as a single record."""

from collections.abc import Callable, Sequence
from time import monotonic

from eden_memory.stages.stage import Delivery


class Gathering:
    """Lets fewer than `most` records wait, for at most `seconds`; `clock` gives seconds."""

    def __init__(self, seconds: float, most: int, clock: Callable[[], float] = monotonic) -> None:
        self._seconds, self._most, self._clock = seconds, most, clock
        self._since: dict[int, tuple[str, float]] = {}
        """By partition: its first waiting record, and since when it has waited."""

    def left(self, deliveries: Sequence[Delivery]) -> float:
        """Return for how many more seconds these records of a partition may wait; 0.0: not at all."""
        first, now = deliveries[0], self._clock()
        if len(deliveries) >= self._most or first.asks_anew:
            return 0.0
        name, since = self._since.get(first.partition, ("", now))
        if name != first.id:
            since = now
        self._since[first.partition] = first.id, since
        return max(0.0, since + self._seconds - now)
