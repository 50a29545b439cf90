"""Both sides of a rebuild on real servers: the live writer, and the very command."""

from collections.abc import AsyncGenerator

import pytest

from eden_memory.settings import Settings
from tests.integration.replay.replay_kit import ReplayKit
from tests.integration.stages_on_servers import on_servers


@pytest.fixture
async def kit(settings: Settings) -> AsyncGenerator[ReplayKit]:
    async with on_servers(ReplayKit, settings) as kit:
        yield kit
