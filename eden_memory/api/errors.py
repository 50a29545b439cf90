"""What the doors answer when they cannot do what is asked: each door has a form of its own for these."""

from eden_memory.domain.errors import EdenError


class NotFound(EdenError):  # noqa: N818 - an answer
    """There is nothing of that id, or nothing that may be seen here: both look the same."""


class Invalid(EdenError, ValueError):  # noqa: N818
    """What was given is not what it should be."""


class NotAnId(Invalid, TypeError):  # noqa: N818
    """Something stands for an id that is none."""


class Conflict(EdenError):  # noqa: N818 - an answer
    """It has changed since the caller saw it."""
