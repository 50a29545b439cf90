"""Scans of everything stored for a word that was forgotten, before and after compaction."""

import asyncio

from eden_memory.doctor.canary_scan_store import InTopics, in_collections, in_topics
from eden_memory.kafka.topics import load_topics
from tests.chaos.compaction import FILLER_PAUSE, fill, hurry
from tests.integration.system.running_system import PARTITIONS, System, until

COMPACTED = (
    "chat.messages",
    "memory.facts",
    "memory.reflections",
    "memory.consolidations",
    "memory.extractions",
    "memory.candidates",
    "memory.commands",
)
ROUNDS = 120


async def until_erased(running: System, word: bytes) -> None:
    """Until no document holds the word, and no record that compaction leaves."""
    await until(lambda: _unstored(running, word), "no document holds it")
    await until(lambda: _ended(running, word), "the newest record of each key does not hold it")


async def nothing_left_after_compaction(running: System, word: bytes) -> None:
    """Compact, and scan everything raw."""
    for topic in COMPACTED:
        await _compact(running, topic, word)
    assert await _in_topics(running, word) == InTopics({}, {})
    assert await _unstored(running, word)


async def _compact(running: System, topic: str, word: bytes) -> None:
    """Let the topic's cleaner work at once, until the text is gone: each new segment lets the one before go."""
    kafka = running.settings.kafka
    assert kafka.bootstrap is not None
    await asyncio.to_thread(hurry, kafka.bootstrap, kafka.topic_prefix + topic)
    for _ in range(ROUNDS):
        values = [one.value for one in await running.records(topic)]
        if not [one for one in values if one is not None and word in one]:
            return
        await asyncio.sleep(FILLER_PAUSE)
        await fill(kafka.bootstrap, kafka.topic_prefix + topic, PARTITIONS)
    raise AssertionError(f"{topic} still holds it")


async def _unstored(running: System, word: bytes) -> bool:
    return not await in_collections(running.database, running.settings.mongodb.prefix, word)


async def _ended(running: System, word: bytes) -> bool:
    return not (await _in_topics(running, word)).standing


async def _in_topics(running: System, word: bytes) -> InTopics:
    names = [topic.name for topic in load_topics(running.settings.kafka)]
    return await in_topics(running.client, names, word)
