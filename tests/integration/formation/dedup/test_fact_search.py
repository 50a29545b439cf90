"""Facts by meaning on a real server: what is found is what the store holds, however long the cache has lived."""

import asyncio
import random
import threading
from typing import Any

import pytest

from eden_memory.formation import near_fact_store
from eden_memory.formation.near_fact_store import MongoFactSearch
from eden_memory.memory.scope_matrix import ScopeMatrix, matrix_of
from eden_memory.memory.snapshot_store import MongoSnapshots
from eden_memory.mongo.documents import packed_of
from eden_memory.schemas.events import FactChanged
from eden_memory.schemas.provenance import Embedding
from eden_memory.schemas.scopes import Scope
from tests.integration.formation.dedup.dedup_servers import Database, write
from tests.integration.search.search_kit import fact
from tests.names import NAMES
from tests.unit.formation.dedup.dedup_kit import ANA, DIMENSIONS, at, embedded

pytestmark = pytest.mark.servers
BEN = Scope.of_user("s.agent", "s.ben")
WORDS = ("ana", "lives", "in", "lyon", "porto", "rome", "with", "cat", "dog", "since", "may", "june")
MODEL = "test"


def changed(
    name: str, version: int, text: str, *, scope: Scope = ANA, outcome: int = 1, **fields: object
) -> FactChanged:
    return fact(name, text, version, scope=scope, outcome=outcome, formed_at=at(0), **fields)


def retired(name: str, version: int, text: str, *, scope: Scope = ANA) -> FactChanged:
    gone: dict[str, Any] = {"retired_at": at(version), "retired_because": "asked", "embedding": None}
    return changed(name, version, text, scope=scope, **gone)


async def by_hand(database: Database, scope: Scope, text: str) -> list[tuple[str, float]]:
    """Every active fact of the scope, compared by itself."""
    rows = await database["memory_facts"].find({"scope_key": scope.key, "active": True}).to_list()
    matrix = matrix_of(((row["_id"], packed_of(row["embedding"]) or b"") for row in rows), DIMENSIONS)
    return [(hit.fact_id, hit.similarity) for hit in matrix.nearest([embedded(text).vector], 5, 0.6)[0]]


async def found(search: MongoFactSearch, scope: Scope, text: str) -> list[tuple[str, float]]:
    (near,) = await search.nearest(scope.key, [embedded(text).vector], 5, 0.6)
    return [(one.fact.fact_id, one.similarity) for one in near]


async def test_a_cache_that_lives_on_finds_what_comparing_everything_finds(database: Database) -> None:
    dice = random.Random(5)
    search = MongoFactSearch(database, NAMES, MODEL)
    versions: dict[tuple[str, str], int] = {}
    for _ in range(40):
        batch: list[FactChanged] = []
        for _ in range(dice.randint(1, 6)):
            scope, name = dice.choice((ANA, BEN)), f"f{dice.randrange(30)}"
            name = f"{scope.user_id}-{name}"
            version = versions[scope.key, name] = versions.get((scope.key, name), 0) + 1
            text = " ".join(dice.choices(WORDS, k=4))
            make = retired if version > 1 and dice.random() < 0.3 else changed
            batch.append(make(name, version, text, scope=scope))
        await write(database, batch)
        if dice.random() < 0.2:
            await database["memory_facts"].delete_one({"_id": dice.choice(batch).fact_id})
        for scope in (ANA, BEN):
            text = " ".join(dice.choices(WORDS, k=3))
            assert await found(search, scope, text) == await by_hand(database, scope, text)


async def test_what_is_found_is_whole(database: Database) -> None:
    event = changed("a", 1, "ana lives in lyon")
    await write(database, [event])
    search = MongoFactSearch(database, NAMES, MODEL)
    ((near,),) = await search.nearest(ANA.key, [embedded("in lyon lives ana").vector], 5, 0.9)
    (same,) = await search.with_hash(ANA.key, [event.hash, "0" * 64])
    named = await search.facts(["a", "unknown"])
    assert near.similarity == 1
    assert near.fact == same == named["a"]
    assert event.embedding
    assert (near.fact.vector, near.fact.embedding_model) == (event.embedding.vector, MODEL)
    assert (near.fact.text, near.fact.version, near.fact.scope_key) == (event.text, 1, ANA.key)
    assert (near.fact.sources, near.fact.formed_at, near.fact.valid_from) == (event.sources, at(0), at(1))


async def test_a_retired_fact_is_found_by_its_id_alone(database: Database) -> None:
    event = changed("a", 1, "ana lives in lyon")
    await write(database, [event, retired("a", 2, event.text)])
    search = MongoFactSearch(database, NAMES, MODEL)
    fact = (await search.facts(["a"]))["a"]
    assert (fact.retired, fact.retired_at, fact.retired_because) == (True, at(2), "asked")
    assert await search.with_hash(ANA.key, [event.hash]) == []
    assert await found(search, ANA, event.text) == []
    assert await search.nearest(ANA.key, [], 5, 0) == []
    assert (await search.with_hash(ANA.key, []), await search.facts([])) == ([], {})


async def test_another_models_vectors_are_left_out_and_counted_until_they_are_made_anew(
    database: Database,
) -> None:
    counted: list[int] = []
    text = "ana lives in lyon"
    other = Embedding(model="other", vector=embedded(text).vector)
    short = Embedding(model=MODEL, vector=embedded(text).vector[:40])
    await write(database, [changed("a", 1, text), changed("b", 1, text, embedding=other)])
    await write(database, [changed("c", 1, text, embedding=short)])
    search = MongoFactSearch(database, NAMES, MODEL, skipped=counted.append)
    assert [name for name, _ in await found(search, ANA, text)] == ["a"]
    await write(database, [changed("b", 2, text)])
    assert [name for name, _ in await found(search, ANA, text)] == ["a", "b"]
    assert counted == [2, 1]


async def test_a_scope_that_begins_anew_is_read_anew(database: Database) -> None:
    text = "ana lives in lyon"
    search = MongoFactSearch(database, NAMES, MODEL)
    for version in (1, 2, 3):
        await write(database, [changed("a", version, f"{text} {version}")])
    assert await found(search, ANA, text)
    await database["memory_facts"].delete_many({})
    await database["memory_snapshots"].delete_many({})
    assert await found(search, ANA, text) == []
    await write(database, [changed("b", 1, text)])
    assert [name for name, _ in await found(search, ANA, text)] == ["b"]


async def test_a_cancelled_comparison_keeps_writers_away_until_its_thread_has_read(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end, nearest = threading.Event(), threading.Event(), ScopeMatrix.nearest
    under_way: list[str] = []

    def slow(self: ScopeMatrix, *given: Any) -> Any:
        under_way.append("reading")
        begun.set()
        assert may_end.wait(20)
        under_way.remove("reading")
        return nearest(self, *given)

    def put(self: ScopeMatrix, *given: Any) -> bool:
        assert not under_way
        return stored(self, *given)

    text, stored = "ana lives in lyon", ScopeMatrix.put
    search = MongoFactSearch(database, NAMES, MODEL)
    await write(database, [changed("a", 1, text)])
    monkeypatch.setattr(near_fact_store, "THREAD_PRODUCTS", 0)
    monkeypatch.setattr(ScopeMatrix, "nearest", slow)
    monkeypatch.setattr(ScopeMatrix, "put", put)
    cancelled = asyncio.create_task(found(search, ANA, text))
    await asyncio.to_thread(begun.wait, 20)
    cancelled.cancel()
    await write(database, [changed("b", 1, f"{text} today")])
    after = asyncio.create_task(found(search, ANA, text))
    await asyncio.wait([after], timeout=1)
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert {name for name, _ in await after} == {"a", "b"}


async def test_removed_documents_make_room_for_the_next_nearest(database: Database) -> None:
    text = "ana lives in lyon"
    await write(database, [changed(f"n{number}", 1, text) for number in range(8)])
    search = MongoFactSearch(database, NAMES, MODEL)
    assert [name for name, _ in await found(search, ANA, text)] == ["n0", "n1", "n2", "n3", "n4"]
    await database["memory_facts"].delete_many({"_id": {"$in": ["n0", "n2", "n4"]}})
    assert [name for name, _ in await found(search, ANA, text)] == ["n1", "n3", "n5", "n6", "n7"]


async def test_scopes_not_used_for_long_leave_when_memory_is_full(database: Database) -> None:
    scopes = [Scope.of_user("s.agent", f"s.u{number}") for number in range(6)]
    for scope in scopes:
        await write(database, [changed(f"{scope.user_id}", 1, "ana lives in lyon", scope=scope)])
    search = MongoFactSearch(database, NAMES, MODEL, most_bytes=3_000)
    for _ in range(2):
        for scope in scopes:
            assert await found(search, scope, "ana lives in lyon") == [(scope.user_id, 1.0)]
            assert search.kept_bytes <= 3_000
    assert search.kept_bytes > 0


async def test_snapshots_are_read_together_and_those_that_are_not_there_are_left_out(
    database: Database,
) -> None:
    await write(database, [changed("a", 1, "ana lives in lyon"), changed("b", 1, "ben", scope=BEN)])
    await database["memory_snapshots"].update_one({"_id": ANA.key}, {"$set": {"from_the_future": 1}})
    snapshots = await MongoSnapshots(database, NAMES).snapshots([ANA.key, BEN.key, "agent:s.none", ANA.key])
    assert {key: one.active_facts for key, one in snapshots.items()} == {ANA.key: 1, BEN.key: 1}
    assert snapshots[ANA.key].recent_facts[0].content == "ana lives in lyon"
    assert await MongoSnapshots(database, NAMES).snapshots([]) == {}
