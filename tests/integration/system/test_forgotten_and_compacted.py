"""A word that was said, formed, merged, consolidated and searched is forgotten: nothing of it is left anywhere."""

import asyncio

import pytest
from prometheus_client import generate_latest

from eden_memory.doctor.canary_scan_store import InTopics, in_collections, in_topics
from eden_memory.kafka.topics import load_topics
from eden_memory.settings import Settings
from tests.chaos.compaction import FILLER_PAUSE, fill, hurry
from tests.integration.system.commands import eden
from tests.integration.system.running_system import PARTITIONS, System, fast, stages, system, until
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers
COMPACTED = (
    "chat.messages",
    "memory.facts",
    "memory.reflections",
    "memory.consolidations",
    "memory.extractions",
    "memory.candidates",
)
WORD = b"Zanzibar"
ROUNDS = 120


async def test_nothing_is_left_anywhere_of_what_was_forgotten(
    settings: Settings, shared_models: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    settings = fast(settings, shared_models)
    async with system(settings, shared_models, run=False) as running:
        async with stages(settings):
            session, other = await running.session("xan"), await running.session("yul")
            await running.told(
                session,
                "xan",
                "fact user: Xan digs at Zanzibar same-dig.",
                *(f"note user: Xan likes Zanzibar {n}." for n in range(4)),
            )
            await running.told(other, "yul", "fact user: Yul lives in Bergen.")
            later = await running.session("xan")
            await running.told(later, "xan", "fact user: Xan digs for gold same-dig.")
            await running.shows(session, "xan", "Zanzibar", "<Consolidated>")
            assert await running.service.search_facts(["Xan digs at Zanzibar"], session=session, user="xan")
            assert "Asked." in await eden(settings, "forget", "session", session, "--yes")
            await running.shows(session, "xan", "Xan digs for gold", without=["Zanzibar"])
            await until(lambda: _tombstoned(running), "the newest record of each key is a tombstone")
            await until(lambda: _not_stored(running), "no document holds it")
        for topic in COMPACTED:
            await _compact(running, topic)
        names = [topic.name for topic in load_topics(settings.kafka)]
        assert await in_topics(running.client, names, WORD) == InTopics({}, {})
        assert await in_collections(running.database, settings.mongodb.prefix, WORD) == {}
        assert WORD.decode() not in caplog.text
        assert WORD not in generate_latest()
        kept = [one.value for topic in COMPACTED for one in await running.records(topic)]
    assert [value for value in kept if value is not None and b"Bergen" in value]


async def _compact(running: System, topic: str) -> None:
    """Let the topic's cleaner work at once, until the text is gone: each new segment lets the one before go."""
    kafka = running.settings.kafka
    assert kafka.bootstrap is not None
    await asyncio.to_thread(hurry, kafka.bootstrap, kafka.topic_prefix + topic)
    for _ in range(ROUNDS):
        values = [one.value for one in await running.records(topic)]
        if not [one for one in values if one is not None and WORD in one]:
            return
        await asyncio.sleep(FILLER_PAUSE)
        await fill(kafka.bootstrap, kafka.topic_prefix + topic, PARTITIONS)
    raise AssertionError(f"{topic} still holds it")


async def _tombstoned(running: System) -> bool:
    names = [topic.name for topic in load_topics(running.settings.kafka)]
    return not (await in_topics(running.client, names, WORD)).standing


async def _not_stored(running: System) -> bool:
    return not await in_collections(running.database, running.settings.mongodb.prefix, WORD)
