"""Errors that the program explains to people."""


class EdenError(Exception):
    """An error that says what happened and what to do next; shown without a stack trace unless `--debug` is given."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.what}\n{self.hint}" if self.hint else self.what


class NotFound(EdenError):  # noqa: N818 - an answer
    """There is nothing of that id, or nothing that may be seen here: both look the same."""


class Invalid(EdenError, ValueError):  # noqa: N818
    """An argument, a setting or a request is not valid."""


class NotAnId(Invalid, TypeError):  # noqa: N818
    """Something stands for an id that is none."""


class Conflict(EdenError):  # noqa: N818 - an answer
    """It has changed since the caller saw it."""


class ServerAway(EdenError):  # noqa: N818 - reads as what happened
    """MongoDB or Kafka does not answer, or refuses a request: background work tries it again (stages/patience.py)."""


class OverBudget(EdenError):  # noqa: N818 - an answer
    """A budget that concerns a search has no room left."""

    def __init__(self, budget: str) -> None:
        super().__init__(
            f"budget {budget} has no room left: facts are found by words alone",
            "`eden budget list` shows it; search by `text` or `hybrid`.",
        )


class MemoryRestored(EdenError):  # noqa: N818 - an answer
    """MongoDB was restored from a backup, and what was forgotten since is not forgotten there yet."""

    def __init__(self) -> None:
        super().__init__(
            "MongoDB was restored from a backup: nothing is shown until what was forgotten since is forgotten again",
            "`eden run` does that, and must be running; then ask again.",
        )
