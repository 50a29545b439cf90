"""Moments that the timers of a process share, so that one wake-up serves many of them.

Work that wakes a process costs several times as much as the same work beside other work: caches are cold by then.
"""

import asyncio

LEAST = 0.5
"""The first wait of a timer takes at least this share of its period."""


def until_tick(seconds: float) -> float:
    """Return the seconds until the event loop's clock shows a multiple of `seconds`: half to one and a half times.

    The event loop's clock is the same for all timers of a process, and periods that are multiples of each other meet.
    """
    left = seconds - asyncio.get_running_loop().time() % seconds
    return left if left >= LEAST * seconds else left + seconds
