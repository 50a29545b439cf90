"""How long a failed attempt waits before the next one."""

import random

from eden_memory.stages.stage import RetryPolicy

SEVERAL = 3
"""So many different units or questions failed and none succeeded: it may be an outage."""
PROBES = RetryPolicy(first=1.0, cap=30.0)
"""How long to wait between two probes of an outage."""


def backoff(policy: RetryPolicy, attempts: int) -> float:
    """Seconds to wait after so many failed attempts: full jitter under a capped exponential.

    Source: Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
    """
    ceiling = min(policy.cap, policy.first * 2 ** min(attempts - 1, 30))
    return random.uniform(0, ceiling)  # noqa: S311 - nothing secret


def growing(policy: RetryPolicy, failures: int) -> float:
    """Seconds to wait after so many failures in a row that did not count: each twice the one before, capped."""
    return min(policy.cap, policy.first * 2 ** min(failures - 1, 30))
