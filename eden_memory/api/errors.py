"""What the doors answer when they cannot do what is asked: each door has a form of its own for these."""

from eden_memory.domain.errors import EdenError, Invalid, NotFound

__all__ = ["Conflict", "Invalid", "NotAnId", "NotFound", "OverBudget"]


class NotAnId(Invalid, TypeError):  # noqa: N818
    """Something stands for an id that is none."""


class Conflict(EdenError):  # noqa: N818 - an answer
    """It has changed since the caller saw it."""


class OverBudget(EdenError):  # noqa: N818 - an answer
    """A budget that concerns a search has no room left."""

    def __init__(self, budget: str) -> None:
        super().__init__(
            f"budget {budget} has no room left: facts are found by words alone",
            "`eden budget list` shows it; search by `text` or `hybrid`.",
        )
