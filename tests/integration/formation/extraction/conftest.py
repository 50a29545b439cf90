"""Topics and connections, anew for each test."""

from collections.abc import AsyncGenerator

import pytest

from eden_memory.settings import Settings
from tests.integration.formation.extraction.extraction_kit import Kit
from tests.integration.stages_on_servers import on_servers


@pytest.fixture
async def kit(settings: Settings) -> AsyncGenerator[Kit]:
    async with on_servers(Kit, settings) as kit:
        yield kit
