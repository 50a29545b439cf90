"""How many requests a caller may make: a token bucket for each, filled evenly over the minute."""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from eden_memory.access.callers import Caller

MOST_KEPT = 10_000


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class Rates:
    """`per_minute`: of callers whose key sets no limit of its own; None: as many as they like.

    Counted in this process: with several copies behind a balancer each lets so many through.
    """

    def __init__(self, per_minute: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute, self._clock = per_minute, clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def wait_of(self, caller: Caller) -> float:
        """0.0 and one request is counted, or the seconds until the next one is let through."""
        limit = caller.requests_per_minute or self._per_minute
        if limit is None:
            return 0.0
        now, full = self._clock(), float(limit)
        bucket = self._buckets.setdefault(caller.name, _Bucket(full, now))
        self._buckets.move_to_end(caller.name)
        bucket.tokens = min(full, bucket.tokens + (now - bucket.at) * full / 60)
        bucket.at = now
        if len(self._buckets) > MOST_KEPT:
            self._buckets.popitem(last=False)
        if bucket.tokens >= 1:
            bucket.tokens -= 1
            return 0.0
        return (1 - bucket.tokens) * 60 / full
