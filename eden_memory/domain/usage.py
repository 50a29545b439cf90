"""Where the model calls of a running handler are noted, so that they are published with what it decided."""

from contextvars import ContextVar

from schemas.events import ModelCalled

CALLS: ContextVar[list[ModelCalled] | None] = ContextVar("model calls of this handler", default=None)


def note(call: ModelCalled) -> None:
    """Add a call to those of the handler that runs; outside of any handler it is let go."""
    calls = CALLS.get()
    if calls is not None:
        calls.append(call)
