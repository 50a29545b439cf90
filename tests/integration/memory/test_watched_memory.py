"""What people who watch are shown: what is new, and nothing that was there before."""

import asyncio

import pytest

from eden_memory.observability.watching import WatchedChange, memory_feed
from tests.integration.memory.writer_kit import Database, apply, store_of
from tests.names import NAMES
from tests.unit.memory.memory_histories import blob, delivered, fact, reflection

pytestmark = pytest.mark.servers


async def test_a_reflection_from_before_that_a_blob_absorbs_is_not_shown_as_new(database: Database) -> None:
    store = store_of(database)
    await apply(store, [delivered(reflection("before")), delivered(fact("f", 1))])
    seen: list[WatchedChange] = []
    async with memory_feed(database, NAMES) as feed:
        await apply(
            store,
            [
                delivered(blob(1, ["before"])),
                delivered(fact("f", 2, "Ana lives in Lund.")),
                delivered(fact("g", 1, "Ana rows.")),
            ],
        )
        await apply(store, [delivered(reflection("last", at=9))])
        async with asyncio.timeout(30):
            async for change in feed:
                seen.append(change)
                if change.document["_id"] == "last":
                    break
    assert sorted((change.collection, change.document["content"]) for change in seen) == [
        ("consolidated", "All about Ana, 1."),
        ("facts", "Ana lives in Lund."),
        ("facts", "Ana rows."),
        ("reflections", "Ana wants last."),
    ]
