"""What tests of calls of models share."""

from collections.abc import Iterator

import pytest

from eden_memory.schemas.events import ModelCalled
from eden_memory.stages.handler_run import RUN, HandlerRun


@pytest.fixture
def noted() -> Iterator[list[ModelCalled]]:
    """The calls of the handler that runs."""
    run = HandlerRun()
    token = RUN.set(run)
    yield run.calls
    RUN.reset(token)
