"""Topics and connections, anew for each test."""

from collections.abc import AsyncGenerator

import pytest

from eden_memory.settings import Settings
from tests.integration.stages_on_servers import on_servers
from tests.integration.windows.harness import Kit


@pytest.fixture
async def kit(settings: Settings) -> AsyncGenerator[Kit]:
    async with on_servers(Kit, settings) as kit:
        yield kit
