"""A tailer's topics and database, anew for each test; everything that waits, waits shortly."""

from collections.abc import AsyncIterator

import pytest

from eden_memory.settings import Settings
from tests.integration.tailer.harness import Kit, kit

QUICK = {"lease_seconds": 3.0, "commit_seconds": 0.2, "watermark_seconds": 0.3}


@pytest.fixture
def quick(settings: Settings) -> Settings:
    return settings.model_copy(update={"tailer": settings.tailer.model_copy(update=QUICK)})


@pytest.fixture
async def chat(quick: Settings) -> AsyncIterator[Kit]:
    async with kit(quick) as made:
        yield made
