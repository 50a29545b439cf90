"""Reflections of then are found however many were formed since."""

import pytest

from eden_memory.search import unindexed_list_store
from eden_memory.search.fact_candidates import When
from eden_memory.search.unindexed_list_store import ReflectionLists
from tests.integration.search.search_kit import ANA, NAMES, Database
from tests.unit.formation.dedup.dedup_kit import at

pytestmark = pytest.mark.servers
KEY = ANA.key


async def test_newer_reflections_take_no_place_from_those_of_then(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unindexed_list_store, "MOST_READ", 2)
    newer = [
        {"_id": f"new{number}", "content": "tea", "said_at": at(100 + number), "formed_at": at(200)}
        for number in range(3)
    ]
    earlier = [{"content": "tea then", "version": 1, "said_at": at(5)}]
    reworded = {"_id": "reworded", "content": "tea", "version": 2, "said_at": at(150), "history": earlier}
    old = {"_id": "old", "content": "tea", "said_at": at(4), "formed_at": at(9)}
    rows = [*newer, {**reworded, "formed_at": at(5)}, old]
    await database[NAMES["reflections"]].insert_many(
        [{"version": 1, **row, "scope_key": KEY} for row in rows]
    )
    lists = ReflectionLists(database, NAMES, None)
    (then,) = await lists.textual([KEY], ["tea"], 10, 0.0, When(as_of=at(10)))
    assert {ranked.fact.fact_id for ranked in then} == {"old", "reworded"}
