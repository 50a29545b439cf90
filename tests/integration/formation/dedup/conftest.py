"""Databases, topics and connections, anew for each test."""

from collections.abc import AsyncGenerator

import pytest

from eden_memory.mongo.client import connect
from eden_memory.settings import Settings
from tests.integration.formation.dedup.dedup_servers import Database, Stage, prepared
from tests.integration.stages_on_servers import on_servers


@pytest.fixture
async def database(settings: Settings) -> AsyncGenerator[Database]:
    """MongoDB alone, with all indexes."""
    assert settings.mongodb.uri is not None
    async with connect(settings.mongodb, settings.mongodb.uri.get_secret_value()) as client:
        yield await prepared(client[settings.mongodb.database])


@pytest.fixture
async def stage(settings: Settings) -> AsyncGenerator[Stage]:
    async with on_servers(Stage, settings) as stage:
        yield stage
