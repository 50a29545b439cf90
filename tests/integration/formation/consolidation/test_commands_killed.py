"""A command whose outcome is stored when its process is killed is carried out once, by the next process."""

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from eden_memory.processors import pipeline
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import MemoryCommanded, ScopeConsolidated
from eden_memory.settings import Settings
from eden_memory.stages.stage import Delivery
from tests.integration.formation.consolidation.consolidation_kit import BOTH, NOON, Kit, reflection, user
from tests.integration.stages_on_servers import on_servers
from tests.servers import TestServers

pytestmark = pytest.mark.servers
FIRST = reflection(user(1), 1)


@pytest.fixture
async def kit(settings: Settings) -> AsyncGenerator[Kit]:
    async with on_servers(Kit, settings) as kit:
        yield kit


def command(name: str, action: str, **fields: Any) -> Delivery:
    """The record that the tailer makes of a request."""
    event = MemoryCommanded(
        command_id=name,
        scope=user(1),
        action=action,  # pyright: ignore[reportArgumentType]
        by="person",
        asked_by="mara",
        asked_at=NOON,
        **fields,
    )
    envelope = Envelope(name, event.NAME, 1, "test", NOON, event.subject(), event.scope.key)
    return Delivery(envelope, event, "memory.commands", event.key())


async def killed(servers: TestServers, kit: Kit) -> None:
    """A process that stores the outcome of what waits, and is killed before it publishes it."""
    kafka = kit.settings.kafka
    names = (kit.settings.mongodb.database, kafka.topic_prefix, kafka.group_prefix)
    module = "tests.integration.formation.consolidation.consolidation_process"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, servers.mongodb_uri, servers.kafka_bootstrap, *names
    )
    try:
        assert await asyncio.wait_for(process.wait(), 120) == -signal.SIGKILL
    finally:
        if process.returncode is None:
            process.kill()


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(command("pinned", "pin", text="Never call before nine."), marks=pytest.mark.slow),
        command("edited", "edit_reflection", text="edited", reflection_id=FIRST.event.subject()),  # pyright: ignore
    ],
    ids=lambda asked: asked.event.action,
)
async def test_a_command_is_carried_out_once(servers: TestServers, kit: Kit, asked: Delivery) -> None:
    async with kit.running(pipeline.ATLAS_WRITER):
        await kit.put([FIRST])
        await kit.holds(lambda: kit.database["memory_snapshots"].find_one({"buffer.0": {"$exists": True}}))
    await kit.put([asked])
    await killed(servers, kit)
    outcomes = kit.database["memory_outcomes"]
    assert await outcomes.count_documents({"stage": "consolidation"}) == 1
    assert (await kit.snapshot(user(1))).get("blob") is None, "nothing is published"
    async with kit.running(*BOTH):
        await kit.put([command("later", "pin", text="Likes tables.")])
        await kit.holds(
            lambda: kit.database["memory_snapshots"].find_one({"blob": {"$regex": "Likes tables"}})
        )
    shown = await kit.snapshot(user(1))
    assert await outcomes.count_documents({"stage": "consolidation"}) == 2
    pinned = asked.event.action == "pin"  # pyright: ignore
    assert (shown["blob_version"], len(shown["pins"])) == ((2, 2) if pinned else (1, 1))
    assert [(one["content"], one["version"]) for one in shown["buffer"]] == [
        ("insight 1", 1) if pinned else ("edited", 2)
    ]
    async with kit.topic("memory.reflections", "memory.consolidations") as topic:
        await topic.until_true(lambda: len(topic.events) == 3, "the reflections and blobs, each version once")
        assert len(topic.of(ScopeConsolidated)) == shown["blob_version"]
        assert all(len(values) == 1 for values in topic.values().values()), "it comes again as it was"
