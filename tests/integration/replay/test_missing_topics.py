"""Topics that are not there: said by name, in place of a memory of nothing."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportUnknownVariableType]
from rich.console import Console

from eden_memory.cli.replay.rebuild import from_nothing
from eden_memory.cli.replay.reform import reformed
from eden_memory.errors import EdenError
from eden_memory.kafka.connection import admin_config
from eden_memory.kafka.topic_admin import apply_topics
from eden_memory.kafka.topics import load_topics
from eden_memory.replay.installation import Installation, installation
from eden_memory.replay.rebuild.namespace_rebuild import filling
from eden_memory.replay.reform.namespace_reform import ReformRequest
from eden_memory.replay.restore.restored_store import MongoLost
from eden_memory.settings import Settings
from tests.servers import wait_until

pytestmark = pytest.mark.servers
QUIET = Console(quiet=True)


@pytest.fixture
async def at(settings: Settings) -> AsyncGenerator[Installation]:
    async with installation(settings) as one:
        yield one


async def test_no_topic_at_all_is_said_by_every_command(at: Installation) -> None:
    with pytest.raises(EdenError, match=r"Kafka has no topic \S+memory\.formations"):
        await reformed(at.settings, "trial", ReformRequest(), QUIET, yes=True)
    with pytest.raises(EdenError, match=r"Kafka has no topic \S+memory\.consolidations"):
        async with filling(at, "may", lambda _: None):
            pytest.fail("nothing can be rebuilt")
    with pytest.raises(EdenError, match=r"Kafka has no topic \S+chat\.messages"):
        await from_nothing(at.settings, QUIET)
    assert await at.namespaces.all() == []


async def test_one_topic_that_is_missing_keeps_everything_from_being_restored(at: Installation) -> None:
    topics = load_topics(at.settings.kafka, at.settings.placement)
    config = admin_config(at.settings.kafka, str(at.settings.kafka.bootstrap))
    await asyncio.to_thread(apply_topics, config, topics)
    facts = topics.name("memory.facts")
    await asyncio.to_thread(_delete, AdminClient(config), facts)
    with pytest.raises(EdenError, match=f"Kafka has no topic {facts}\n"):
        await from_nothing(at.settings, QUIET)
    lost = MongoLost(at.database, at.settings.names)
    assert (await lost.state(), await lost.in_the_way()) == (None, {})
    await asyncio.to_thread(apply_topics, config, topics)
    await from_nothing(at.settings, QUIET)
    assert await lost.state() == "done"


def _delete(admin: Any, topic: str) -> None:
    admin.delete_topics([topic])[topic].result(30)
    wait_until(lambda: topic not in admin.list_topics(timeout=10).topics, "the topic is deleted")
