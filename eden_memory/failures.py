"""Failures that adapters raise so that the runtime knows what kind they are."""

from collections.abc import Mapping
from typing import Any


class ProviderError(Exception):
    """A model provider is down, refuses for now or takes too long; `retry_after` in seconds if it said so.

    `counts` is False where it is not shown that the input is at fault: the attempt is not counted against it.
    `alone` is True where nothing suggests an outage: only the input that failed waits, not the whole stage.
    """

    def __init__(
        self, reason: str, retry_after: float | None = None, *, counts: bool = True, alone: bool = False
    ) -> None:
        super().__init__(reason)
        self.retry_after = retry_after
        self.counts = counts
        self.alone = alone


class CapReached(Exception):  # noqa: N818 - reads as what happened
    """A spending cap leaves no room for a call: only this input waits until there is, and no attempt is counted."""


class PermanentError(Exception):
    """This input can never succeed: it is given up at once."""


class QuestionSpent(PermanentError):  # noqa: N818 - reads as what happened
    """A question had cost all its calls in this process before it was asked again: no call was made now."""


DOCUMENT_REFUSED = frozenset({2, 9, 14, 121, 10_334, 17_280, 17_419, 17_420})
"""MongoDB's BadValue, FailedToParse, TypeMismatch, DocumentValidationFailure; a document or key is too large."""


def refused_for_good(code: int | None, details: Mapping[str, Any] | None) -> bool:
    """Whether MongoDB refuses a document itself, by the code of an error or of the writes in its details."""
    writes = (details or {}).get("writeErrors", ())
    return code in DOCUMENT_REFUSED or any(write.get("code") in DOCUMENT_REFUSED for write in writes)
