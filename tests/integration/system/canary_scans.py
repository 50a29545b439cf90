"""Scans of everything stored for a word that was forgotten, before and after compaction."""

import asyncio

from eden_memory.doctor.canary import InTopics, in_collections, in_segment_files, in_topics, segment_folders
from eden_memory.kafka.topic_admin import TopicAdmin
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
    """Compact, and scan everything raw: documents, records, and the files of Kafka's segments."""
    await eden(running.settings, "forget", "--compact", seconds=COMPACTION_SECONDS)
    assert await _in_topics(running, word) == InTopics({}, {})
    assert await _unstored(running, word)
    folders = await segment_folders(running.admin)
    if folders:  # the broker is on this machine
        assert in_segment_files(folders, running.settings.kafka.topic_prefix, b"ce_type")
        assert in_segment_files(folders, running.settings.kafka.topic_prefix, word) == {}


async def _unstored(running: System, word: bytes) -> bool:
    prefix = running.settings.mongodb.prefix
    found = [await in_collections(at, prefix, word) for at in (running.database, running.source)]
    return not any(found)


async def _ended(running: System, word: bytes) -> bool:
    return not (await _in_topics(running, word)).standing


async def _in_topics(running: System, word: bytes) -> InTopics:
    """Look in the topics of all namespaces."""
    admin = await asyncio.to_thread(TopicAdmin, running.admin)
    names = await asyncio.to_thread(admin.names, running.settings.kafka.topic_prefix)
    return await in_topics(running.client, names, word)
