"""How long a call of one model may take, by how fast the model has been measured to be."""

UNMEASURED = 5
"""Times the least deadline, for an endpoint of which no call has been answered yet."""
LONGEST = 15
"""Times the least deadline, at most."""
MARGIN = 2.0
"""Times the longest answer allowed, at the measured speed."""
SLOWEST = 3.0
"""Times the slowest call seen lately."""
FORGETS = 0.9
"""A slower call counts in full at once; a faster one moves the measure by a tenth."""
SHORT = 16
"""An answer of fewer tokens says nothing of the speed: most of its time went into the prompt."""


class Pace:
    """Deadlines in seconds, never below `least` and never above LONGEST times that.

    Measured from a call's begin to its answer, so a server that works on several calls one after the other
    counts as slow as it is.
    """

    def __init__(self, least: float, *, known: bool = True) -> None:
        """`known`: the provider is known to be fast, so that the least deadline does for the first calls too."""
        self._least, self._most = least, least * LONGEST
        self._of_token = self._slowest = 0.0
        self._patience = least if known else least * UNMEASURED

    def deadline(self, tokens: int = 0) -> float:
        """Seconds for a call whose answer has at most so many tokens."""
        measured = max(MARGIN * self._of_token * tokens, SLOWEST * self._slowest)
        return min(self._most, max(self._least, self._patience, measured))

    def answered(self, seconds: float, tokens: int) -> None:
        """Note an answered call."""
        self._patience = self._least
        self._slowest = _slower(self._slowest, seconds)
        if tokens >= SHORT:
            self._of_token = _slower(self._of_token, seconds / tokens)

    def late(self, deadline: float) -> None:
        """Note a call that its deadline has ended: the next one has twice as long."""
        self._patience = min(self._most, max(self._patience, 2 * deadline))


def _slower(known: float, new: float) -> float:
    return max(new, FORGETS * known + (1 - FORGETS) * new)
