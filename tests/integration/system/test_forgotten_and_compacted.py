"""After compaction nothing of a forgotten text is left in any topic that is kept for ever."""

import asyncio

import pytest

from eden_memory.settings import Settings
from tests.chaos.compaction import FILLER_PAUSE, fill, hurry
from tests.integration.system.commands import eden
from tests.integration.system.running_system import PARTITIONS, System, fast, stages, system, until
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers
FOR_EVER = ("chat.messages", "memory.facts", "memory.reflections", "memory.consolidations")
ROUNDS = 120


async def test_compaction_leaves_nothing_of_what_was_forgotten(
    settings: Settings, shared_models: Serving
) -> None:
    settings = fast(settings, shared_models)
    async with system(settings, shared_models, run=False) as running:
        async with stages(settings):
            session, other = await running.session("xan"), await running.session("yul")
            await running.told(
                session,
                "xan",
                "fact user: Xan digs at Zanzibar.",
                *(f"note user: Xan likes Zanzibar {n}." for n in range(4)),
            )
            await running.told(other, "yul", "fact user: Yul lives in Bergen.")
            await running.shows(session, "xan", "Zanzibar", "<Consolidated>")
            assert "Asked." in await eden(settings, "forget", "session", session, "--yes")
            await running.shows(session, "xan", without=["Zanzibar"])
            await until(lambda: _tombstoned(running), "the newest record of each key is a tombstone")
        for topic in FOR_EVER:
            await _compact(running, topic)
        kept = [one.value for topic in FOR_EVER for one in await running.records(topic)]
    assert [value for value in kept if value is not None and b"Bergen" in value]


async def _compact(running: System, topic: str) -> None:
    """Let the topic's cleaner work at once, until the text is gone: each new segment lets the one before go."""
    kafka = running.settings.kafka
    assert kafka.bootstrap is not None
    await asyncio.to_thread(hurry, kafka.bootstrap, kafka.topic_prefix + topic)
    for _ in range(ROUNDS):
        values = [one.value for one in await running.records(topic)]
        if not [one for one in values if one is not None and b"Zanzibar" in one]:
            return
        await asyncio.sleep(FILLER_PAUSE)
        await fill(kafka.bootstrap, kafka.topic_prefix + topic, PARTITIONS)
    raise AssertionError(f"{topic} still holds it")


async def _tombstoned(running: System) -> bool:
    for topic in FOR_EVER:
        last = {one.key: one.value for one in await running.records(topic)}
        if any(b"Zanzibar" in value for value in last.values() if value is not None):
            return False
    return True
