"""The answer store on the real MongoDB, and a stage of its own that asks a model over HTTP."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pymongo import AsyncMongoClient

from eden_memory.models import judging
from eden_memory.models.stored_answers import MongoAnswers
from eden_memory.mongo.client import connect
from eden_memory.settings import Settings
from eden_memory.stages.stage import RetryPolicy
from tests.integration.model_calls.asking_stage import Kit, asking_stage
from tests.integration.stages.harness import bench
from tests.names import NAMES


@pytest.fixture
async def mongo(settings: Settings) -> AsyncIterator[AsyncMongoClient[dict[str, Any]]]:
    assert settings.mongodb.uri is not None
    client = connect(settings.mongodb.uri.get_secret_value())
    yield client
    await client.close()


@pytest.fixture
async def database(settings: Settings, mongo: AsyncMongoClient[dict[str, Any]]) -> Any:
    return mongo[settings.mongodb.database]


@pytest.fixture
async def store(database: Any) -> MongoAnswers:
    answers = MongoAnswers(database, NAMES)
    await answers.prepare()
    return answers


@pytest.fixture
async def kit(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Kit]:
    monkeypatch.setattr(judging, "HOLD", 0.1)
    monkeypatch.setattr(judging, "PROBES", RetryPolicy(first=0.05, cap=0.2))
    async with bench(settings) as runtime, asking_stage(runtime) as kit:
        yield kit
