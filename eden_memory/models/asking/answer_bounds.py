"""How many tokens an answer may have."""

LEAST = 256
DOUBLINGS = 3


def most_tokens(longest: int, repair: int = 0) -> int:
    """The bound of a call: the longest answer that its prompt allows; a repair has twice what it repairs had."""
    return max(LEAST, longest) << min(repair, DOUBLINGS)
