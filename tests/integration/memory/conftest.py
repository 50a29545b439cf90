"""A database that is set up, anew for each test."""

from collections.abc import AsyncGenerator

import pytest

from eden_memory.assembly.mongo_setup import set_up
from eden_memory.settings import Settings
from tests.integration.memory.stage_kit import StageKit
from tests.integration.memory.writer_kit import Database
from tests.integration.stages_on_servers import on_servers


@pytest.fixture
async def database(settings: Settings, database: Database) -> Database:
    await set_up(database, settings.names)
    return database


@pytest.fixture
async def kit(settings: Settings) -> AsyncGenerator[StageKit]:
    async with on_servers(StageKit, settings) as kit:
        yield kit
