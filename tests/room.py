"""How much longer than on a machine of its own something may take on this one."""

import os

NOISE = 1.5


def room() -> float:
    """A factor for deadlines that an issue names: of a machine that others use too, as much as they use it."""
    waiting = os.getloadavg()[0] / (os.cpu_count() or 1)
    return NOISE * max(1.0, waiting)
