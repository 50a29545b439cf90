"""Moments that the timers of a process share, so that one wake-up serves many of them.

Work that wakes a process costs several times as much as the same work beside other work: caches are cold by then.
"""

import asyncio
import random

PHASE = random.uniform(0.0, 60.0)  # noqa: S311 - nothing secret
"""Seconds by which the ticks of this process differ from those of others on its machine."""
LEAST = 0.5
"""The first wait of a timer takes at least this share of its period."""


def until_tick(seconds: float) -> float:
    """Return the seconds until the next tick of timers with this period: half of it to one and a half times.

    All timers of a process count from one moment, so periods that are multiples of each other meet.
    """
    left = seconds - (asyncio.get_running_loop().time() + PHASE) % seconds
    return left if left >= LEAST * seconds else left + seconds
