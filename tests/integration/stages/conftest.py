"""The stage's topics, connections and surroundings, anew for each test."""

from collections.abc import AsyncIterator

import pytest

from eden_memory.settings import Settings
from tests.integration.stages.harness import Bench, bench


@pytest.fixture
async def kit(settings: Settings) -> AsyncIterator[Bench]:
    async with bench(settings) as kit:
        yield kit
