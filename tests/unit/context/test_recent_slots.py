"""Messages that are not formed yet are read for a few askers at a time, from the look for their sessions on."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from pymongo import AsyncMongoClient

from eden_memory.access.visible import Asker
from eden_memory.context.recent_message_store import AT_ONCE, RecentMessages
from eden_memory.context.written_message_store import WrittenMessages
from eden_memory.settings import Settings


async def test_no_more_askers_than_the_slots_are_looked_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []

    async def sessions_of(_: Any, user_id: str, since: datetime, **_more: bool) -> dict[str, str]:
        begun.append(user_id)
        await asyncio.Event().wait()
        return {}

    monkeypatch.setattr(WrittenMessages, "sessions_of", sessions_of)
    client = AsyncMongoClient[dict[str, Any]]("mongodb://127.0.0.1:1", connect=False)
    database, unread = client["unread"], object()
    recent = RecentMessages(database, database, Settings(), unread, lambda: datetime.now(UTC))  # pyright: ignore[reportArgumentType]
    readings = [recent.begin(Asker("s.a", "s.one", f"s.{number}")) for number in range(AT_ONCE + 5)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(begun) == AT_ONCE
    tasks = [task for reading in readings for task in reading.values()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await client.close()
