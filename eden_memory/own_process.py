"""What this process is: our own, in which alone libraries are patched, and a command that a person waits for."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

_ours: list[bool] = []
_longest: ContextVar[float] = ContextVar("longest", default=float("inf"))


def claim_process() -> None:
    """Say that this process runs nothing but Eden Memory, before it connects to anything."""
    _ours.append(True)


def process_is_ours() -> bool:
    """Whether somebody has said so."""
    return bool(_ours)


@contextmanager
def answering_within(seconds: float) -> Generator[None]:
    """Give a server that does not answer no more than so many seconds in the block."""
    before = _longest.set(seconds)
    try:
        yield
    finally:
        _longest.reset(before)


def patience(seconds: float) -> float:
    """Return how long to wait for a server's first answer: the seconds, or fewer where a person waits."""
    return min(seconds, _longest.get())
