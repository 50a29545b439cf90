"""Scopes that an import claimed and never filled: alone, because an import that is killed twice is slow to stage."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.files.exporting import ABANDONED, ScopeClaims
from eden_memory.settings import Settings
from eden_memory.stages.outcome_store import MongoLedger

pytestmark = pytest.mark.servers


async def test_another_file_gets_the_scopes_of_an_import_that_was_given_up(
    settings: Settings, database: AsyncDatabase[dict[str, Any]]
) -> None:
    await MongoLedger(database, settings.names).prepare()
    lost, other = (ScopeClaims(database, settings.names, digit * 32) for digit in "12")
    now = datetime.now(UTC)
    assert await lost.claim({"user:a": 3, "user:b": 1}) == {"user:a", "user:b"}
    await lost.note_published(1_000)
    assert await other.claim({"user:a": 2}) == set()
    assert await other.release(["user:a"], now), "it may still run"
    assert await other.claim({"user:a": 2}) == set()
    assert not await other.release(["user:a"], now + ABANDONED + timedelta(minutes=1))
    assert await other.claim({"user:a": 2}) == {"user:a"}
    assert await lost.claim({"user:b": 1}) == {"user:b"}, "the others stay with it"
