"""A handler's own time: what it waits for a model does not count towards its deadline, a call has one of its own."""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

STOPPED: ContextVar[Callable[[], AbstractContextManager[None]]] = ContextVar(
    "stops the clock of this handler's deadline", default=nullcontext
)


@contextmanager
def off_the_clock() -> Generator[None]:
    """The deadline of the handler that runs stands still inside."""
    with STOPPED.get()():
        yield
