"""Which store searches, and what is made of the rows that Atlas answers with."""

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from eden_memory.mongo.documents import vector_of
from eden_memory.search.atlas_list_store import TEXT_INDEX, VECTOR_INDEX, AtlasFactLists
from eden_memory.search.fact_candidates import NOW, When
from eden_memory.search.plain_list_store import Database, PlainFactLists, fact_lists, searches_by_atlas
from eden_memory.settings import SearchSettings, Settings
from tests.names import NAMES
from tests.unit.formation.dedup.dedup_kit import WordEmbedder, embedded

Row = dict[str, Any]
KEY = "user:s.a:s.u"


class Rows:
    """A cursor."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows

    async def to_list(self) -> list[Row]:
        return self._rows


class Collection:
    """Answers with given rows and search indexes, and keeps what it was asked."""

    def __init__(self, rows: list[Row], indexes: dict[str, bool]) -> None:
        self._rows, self._indexes = rows, indexes
        self.asked: list[list[Row]] = []

    async def aggregate(self, pipeline: list[Row]) -> Rows:
        self.asked.append(pipeline)
        limit = pipeline[0].get("$vectorSearch", {}).get("limit") or pipeline[1]["$limit"]
        return Rows(self._rows[:limit])

    async def list_search_indexes(self) -> Rows:
        return Rows([{"name": name, "queryable": answers} for name, answers in self._indexes.items()])


class Store(dict[str, Collection]):
    """A database of one collection, for the stores that only keep its names."""

    def get_collection(self, name: str, **_: Any) -> Collection:
        return self.setdefault(name, Collection([], {}))


def database(
    rows: list[Row] | None = None, indexes: dict[str, bool] | None = None
) -> tuple[Database, Collection]:
    collection = Collection(rows or [], indexes or {})
    return cast("Database", Store({"memory_facts": collection})), collection


@pytest.mark.parametrize(
    ("adapter", "indexes", "atlas"),
    [
        ("auto", {VECTOR_INDEX: True, TEXT_INDEX: True}, True),
        ("auto", {VECTOR_INDEX: True, TEXT_INDEX: False}, False),
        ("auto", {VECTOR_INDEX: True}, False),
        ("auto", {}, False),
        ("atlas", {}, True),
        ("plain", {VECTOR_INDEX: True, TEXT_INDEX: True}, False),
    ],
)
async def test_the_settings_or_the_server_choose(
    adapter: Any, indexes: dict[str, bool], *, atlas: bool
) -> None:
    settings = Settings(search=SearchSettings(adapter=adapter))
    store, _ = database(indexes=indexes)
    assert await searches_by_atlas(settings, store) is atlas
    lists = fact_lists(settings, store, WordEmbedder(), lambda _bytes, _scopes, _evicted: None, atlas=atlas)
    assert isinstance(lists, AtlasFactLists if atlas else PlainFactLists)


def row(name: str, score: float, **fields: Any) -> Row:
    day = datetime(2026, 1, 1, tzinfo=UTC)
    given = {"scope_key": KEY, "content": name, "active": True, "embedding_model": "test"}
    vector = {
        "embedding": vector_of(embedded(name).vector),
        "formed_at": day,
        "said_at": day,
        "valid_from": day,
    }
    return {"_id": name, "version": 1, "score": score, **given, **vector, **fields}


async def test_where_what_is_private_stands_first_more_of_the_index_is_read() -> None:
    agents, hidden = "agent:s.a", [{"session_id": "s.one", "participants": 1}]
    told = [row(f"u{number}", 0.9, scope_key=agents, sources=hidden) for number in range(20)]
    store, collection = database([*told, *(row(f"o{number}", 0.8, scope_key=agents) for number in range(3))])
    lists, private = AtlasFactLists(store, NAMES, "test"), When(private=frozenset({agents}))
    (near,) = await lists.semantic([agents], [embedded("tea").vector], 3, 0.5, private)
    (words,) = await lists.textual([agents], ["tea"], 3, 0.0, private)
    assert [one.fact.fact_id for one in near] == [one.fact.fact_id for one in words] == ["o0", "o1", "o2"]
    assert len(collection.asked) == 6
    await lists.semantic([agents], [embedded("tea").vector], 3, 0.5, NOW)
    assert len(collection.asked) == 7


async def test_where_what_has_expired_stands_first_more_of_the_index_is_read() -> None:
    ended, now = datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC)
    expired = [row(f"e{number}", 0.9, expires_at=ended) for number in range(20)]
    store, _ = database([*expired, *(row(f"h{number}", 0.8) for number in range(3))])
    lists, when = AtlasFactLists(store, NAMES, "test"), When(unexpired_at=now)
    (near,) = await lists.semantic([KEY], [embedded("tea").vector], 3, 0.5, when)
    (words,) = await lists.textual([KEY], ["tea"], 3, 0.0, when)
    assert [ranked.fact.fact_id for ranked in (*near, *words)] == ["h0", "h1", "h2"] * 2


async def test_what_an_index_that_lags_still_holds_is_left_out() -> None:
    rows = [
        row("kept", 0.9),
        row("retired", 0.8, active=False),
        row("moved", 0.7, scope_key="user:s.a:s.other"),
        row("another model's", 0.6, embedding_model="old"),
    ]
    store, collection = database(rows)
    lists = AtlasFactLists(store, NAMES, "test")
    (near,) = await lists.semantic([KEY], [embedded("kept").vector], 10, 0.5, NOW)
    words = await lists.textual([KEY], ["tea", "the", " "], 10, 0.0, NOW)
    assert [(one.fact.fact_id, one.score) for one in near] == [("kept", 0.9), ("another model's", 0.6)]
    assert [one.fact.vector is not None for one in near] == [True, False]
    assert [len(found) for found in words] == [2, 2, 0]
    assert len(collection.asked) == 3
    assert await lists.semantic([], [b""], 10, 0.5, NOW) == [[]]
    assert len(collection.asked) == 3
