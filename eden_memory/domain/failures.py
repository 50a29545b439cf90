"""Failures that adapters raise so that the runtime knows what kind they are."""


class ProviderError(Exception):
    """A model provider is down, refuses for now or takes too long; `retry_after` in seconds if it said so.

    `counts` is False where the provider as a whole is known to be away or busy: it says nothing about the
    input, so the attempt is not counted against it.
    """

    def __init__(self, reason: str, retry_after: float | None = None, *, counts: bool = True) -> None:
        super().__init__(reason)
        self.retry_after = retry_after
        self.counts = counts


class PermanentError(Exception):
    """This input can never succeed: it is given up at once."""
