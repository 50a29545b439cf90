"""What tests of calls of models share."""

from collections.abc import Iterator

import pytest

from eden_memory.schemas.events import ModelCalled
from eden_memory.stages.model_calls import CALLS


@pytest.fixture
def noted() -> Iterator[list[ModelCalled]]:
    """The calls of the handler that runs."""
    calls: list[ModelCalled] = []
    token = CALLS.set(calls)
    yield calls
    CALLS.reset(token)
