"""Databases, topics and connections, anew for each test."""

from collections.abc import AsyncGenerator

import pytest

from eden_memory.settings import Settings
from tests.integration.formation.dedup.dedup_servers import Database, Stage, prepared
from tests.integration.stages_on_servers import on_servers


@pytest.fixture
async def database(database: Database) -> Database:
    """MongoDB alone, with all indexes."""
    return await prepared(database)


@pytest.fixture
async def stage(settings: Settings) -> AsyncGenerator[Stage]:
    async with on_servers(Stage, settings) as stage:
        yield stage
