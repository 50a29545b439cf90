"""Scans of everything stored for a word that was forgotten, before and after compaction."""

from eden_memory.doctor.canary_scan_store import InTopics, in_collections, in_topics
from eden_memory.kafka.topics import load_topics
from tests.integration.system.commands import eden
from tests.integration.system.running_system import System, until

COMPACTION_SECONDS = 300.0


async def until_erased(running: System, word: bytes) -> None:
    """Until no document holds the word, and no record that compaction leaves."""
    await until(lambda: _unstored(running, word), "no document holds it")
    try:
        await until(lambda: _ended(running, word), "the newest record of each key does not hold it")
    except AssertionError as error:
        error.add_note(f"standing: {(await _in_topics(running, word)).standing}")
        raise


async def nothing_left_after_compaction(running: System, word: bytes) -> None:
    """Compact, and scan everything raw."""
    await eden(running.settings, "forget", "--compact", seconds=COMPACTION_SECONDS)
    assert await _in_topics(running, word) == InTopics({}, {})
    assert await _unstored(running, word)


async def _unstored(running: System, word: bytes) -> bool:
    return not await in_collections(running.database, running.settings.mongodb.prefix, word)


async def _ended(running: System, word: bytes) -> bool:
    return not (await _in_topics(running, word)).standing


async def _in_topics(running: System, word: bytes) -> InTopics:
    names = [topic.name for topic in load_topics(running.settings.kafka)]
    return await in_topics(running.client, names, word)
