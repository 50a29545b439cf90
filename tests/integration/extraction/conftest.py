"""Topics and connections, anew for each test."""

from collections.abc import AsyncGenerator

import pytest

from eden_memory.settings import Settings
from tests.integration.extraction.extraction_kit import Kit, kit_for


@pytest.fixture
async def kit(settings: Settings) -> AsyncGenerator[Kit]:
    async with kit_for(settings) as kit:
        yield kit
