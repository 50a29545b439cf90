"""A tailer's topics and database, anew for each test; everything that waits, waits shortly."""

from collections.abc import AsyncIterator

import pytest

from eden_memory.kafka.connection import admin_config
from eden_memory.kafka.topic_admin import apply_topics
from eden_memory.kafka.topics import load_topics
from eden_memory.settings import Settings
from tests.integration.source.harness import Kit, kit

QUICK = {"lease_seconds": 3.0, "commit_seconds": 0.2, "watermark_seconds": 0.3}


@pytest.fixture
def quick(settings: Settings) -> Settings:
    return settings.model_copy(update={"tailer": settings.tailer.model_copy(update=QUICK)})


@pytest.fixture
async def chat(quick: Settings) -> AsyncIterator[Kit]:
    async with kit(quick) as made:
        yield made


@pytest.fixture
def topics(quick: Settings) -> None:
    """Every topic, as `eden run` wants them."""
    settings = quick.model_copy(update={"kafka": quick.kafka.model_copy(update={"partitions": 3})})
    assert settings.kafka.bootstrap is not None
    apply_topics(admin_config(settings.kafka, settings.kafka.bootstrap), load_topics(settings.kafka))


@pytest.fixture
async def app(quick: Settings, topics: None) -> AsyncIterator[Kit]:
    """The application's side, for tailers that run as processes."""
    async with kit(quick, topics=()) as made:
        yield made
