"""Failures that adapters raise so that the runtime knows what kind they are."""


class ProviderError(Exception):
    """A model provider is down, refuses for now or takes too long; `retry_after` in seconds if it said so."""

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class PermanentError(Exception):
    """This input can never succeed: it is given up at once."""
