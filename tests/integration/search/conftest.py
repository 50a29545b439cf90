"""The stores of facts: a process that is told of changes, one that asks, and Atlas where EDEN_ATLAS_URI names one."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from pydantic import SecretStr
from pytest_socket import enable_socket

from eden_memory.mongo.client import connect
from eden_memory.search.atlas_list_store import AtlasFactLists
from eden_memory.settings import Settings
from tests.conftest import GIVEN
from tests.integration.search.search_kit import Database, Stand, plain, prepared
from tests.names import NAMES
from tests.unit.formation.dedup.dedup_kit import WordEmbedder

ATLAS = "EDEN_ATLAS_URI"


@pytest.fixture
async def database(database: Database) -> Database:
    """MongoDB with all indexes."""
    return await prepared(database)


ON_ATLAS = pytest.mark.skipif(ATLAS not in GIVEN, reason=f"{ATLAS} names no server that has Atlas' search")


@pytest.fixture(params=["told of changes", "asking", pytest.param("atlas", marks=ON_ATLAS)])
async def store(
    request: pytest.FixtureRequest, settings: Settings, database: Database
) -> AsyncGenerator[Stand]:
    """Every implementation."""
    if request.param == "atlas":
        async with _atlas(settings) as stand:
            yield stand
        return
    async with plain(settings, database, followed=request.param == "told of changes") as stand:
        yield stand


@asynccontextmanager
async def _atlas(settings: Settings) -> AsyncGenerator[Stand]:
    uri = GIVEN[ATLAS]
    enable_socket()
    mongodb = settings.mongodb.model_copy(update={"uri": SecretStr(uri)})
    async with connect(uri) as client:
        database = await prepared(client[mongodb.database], search=True)
        try:
            lists = AtlasFactLists(database, NAMES, "test", embedder=WordEmbedder())
            yield Stand(settings, database, lists)
        finally:
            await client.drop_database(mongodb.database)
