"""The model calls of a running handler, published with what it decided; which calls have an unknown cost."""

from contextvars import ContextVar

from eden_memory.schemas.events import ModelCalled

CALLS: ContextVar[list[ModelCalled] | None] = ContextVar("model calls of this handler", default=None)


def note(call: ModelCalled) -> None:
    """Add a call to those of the handler that runs; outside of any handler it is let go."""
    calls = CALLS.get()
    if calls is not None:
        calls.append(call)
