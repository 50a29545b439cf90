"""First searches from stored vectors: they find what documents say, and forgetting leaves nothing in them."""

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from eden_memory.memory import memory_index_store
from eden_memory.schemas.documents import ScopeVectors, VectorBlock
from eden_memory.schemas.scopes import Scope
from eden_memory.search import cached_scope_store, stored_vector_store
from eden_memory.search.fact_candidates import CachedFact, When
from eden_memory.search.stored_vector_store import VectorCopies, VectorCopy
from eden_memory.settings import Settings
from tests.integration.search.search_kit import (
    AGENT,
    ANA,
    BEN,
    WORDS,
    Database,
    changed_fact,
    compared_by_hand,
    fact,
    forget,
    having_words,
    minute,
    plain,
    retired,
    write,
)
from tests.names import NAMES

pytestmark = pytest.mark.servers


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every scope is large, and its blocks are small."""
    for module in (cached_scope_store, stored_vector_store):
        monkeypatch.setattr(module, "LARGE_SCOPE", 1)
    monkeypatch.setattr(memory_index_store, "NEARLY_LARGE", 0)
    monkeypatch.setattr(stored_vector_store, "READ_AT_ONCE", 3)
    monkeypatch.setattr(stored_vector_store, "BLOCK_FACTS", 6)


async def blocks(database: Database, scope: Scope = ANA) -> list[dict[str, Any]]:
    """Return what is stored of a scope's vectors beside the document that counts them."""
    return await database[NAMES["vectors"]].find({"_id": {"$regex": f"^{scope.key}/"}}).to_list()


async def test_what_is_stored_finds_what_comparing_everything_finds(
    settings: Settings, database: Database
) -> None:
    """A process of its own each turn: at first by vectors and $text alone, then by what it reads behind."""
    dice, copies = random.Random(7), VectorCopies(database, NAMES)
    versions: dict[str, int] = {}
    begun = 0
    for _ in range(15):
        batch = [changed_fact(dice, versions) for _ in range(dice.randint(1, 8))]
        await write(database, batch)
        if dice.random() < 0.3:
            await forget(database, batch[-1])
        if dice.random() < 0.6:
            await copies.round()
        async with plain(settings, database, followed=False) as store:
            for whole in (False, True):
                text = " ".join(dice.choices(WORDS, k=3))
                for scope in (ANA, BEN):
                    near = await store.near(text, scope, most=8)
                    exact, best = await compared_by_hand(database, scope, text)
                    assert [exact[one.fact.fact_id, one.fact.text] for one in near] == best
                    said = await store.said(text, scope, most=100)
                    assert set(said) == await having_words(database, scope, text)
                if not whole:
                    begun += bool(await blocks(database))
                    await store.plain.filled()
    assert begun > 5


async def test_a_first_search_reads_no_fact_that_it_does_not_show(
    settings: Settings, database: Database
) -> None:
    await write(database, [fact(f"f{n}", f"tea number {n}") for n in range(40)])
    assert await VectorCopies(database, NAMES).round() == 1
    found = await blocks(database)
    assert len(found) > 5
    assert len([VectorBlock.model_validate(block, strict=False) for block in found]) == len(found)
    head = await database[NAMES["vectors"]].find_one({"_id": ANA.key})
    assert ScopeVectors.model_validate(head, strict=False).facts == 40
    async with plain(settings, database, followed=True) as store:
        assert await store.meant("tea number 7", most=1) == ["f7"]
        assert store.plain.cached_scopes == 1
        await store.plain.filled()
        asked = store.plain.queries
        assert len(await store.said("tea", most=50)) == 40
        assert store.plain.queries == asked


async def test_forgetting_deletes_stored_vectors_with_the_fact(
    settings: Settings, database: Database
) -> None:
    facts = [fact(f"f{n}", f"tea number {n}") for n in range(20)]
    await write(database, [*facts, fact("other", "ben drinks tea", scope=BEN)])
    copies = VectorCopies(database, NAMES)
    assert await copies.round() == 2
    async with plain(settings, database, followed=False) as store:
        assert await store.meant("tea number 7", most=1) == ["f7"]
        await forget(database, facts[7])
        assert not await blocks(database)
        assert len(await blocks(database, BEN)) == 1
        assert "f7" not in await store.meant("tea number 7", most=40, least=0)
        assert "f7" not in await store.said("tea", most=40)
    assert await copies.round() == 1
    assert "f7" not in {name for block in await blocks(database) for name in block["fact_ids"]}


async def test_a_fact_that_is_forgotten_while_vectors_are_copied_is_not_stored(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = [fact(f"f{n}", f"tea number {n}") for n in range(20)]
    await write(database, facts)
    add, forgotten = VectorCopy.add, list[str]()

    async def interrupted(self: VectorCopy, read: Sequence[CachedFact]) -> None:
        if self.blocks and not forgotten:
            forgotten.append(read[-1].fact_id)
            await forget(database, next(one for one in facts if one.fact_id == forgotten[0]))
        await add(self, read)

    monkeypatch.setattr(VectorCopy, "add", interrupted)
    copies = VectorCopies(database, NAMES)
    assert await copies.round() == 0
    assert not await blocks(database)
    assert await copies.round() == 1
    stored = {name for block in await blocks(database) for name in block["fact_ids"]}
    assert stored == {one.fact_id for one in facts} - {*forgotten}


async def test_private_and_expired_facts_are_hidden_from_a_first_search_too(
    settings: Settings, database: Database
) -> None:
    soon = minute(90)
    await write(
        database,
        [
            fact("a", "ana lives in lyon", expires_at=soon),
            *(fact(f"f{n}", f"ana likes tea {n}") for n in range(8)),
            fact("told", "ana lives in lyon", scope=AGENT),
        ],
    )
    await VectorCopies(database, NAMES).round()
    private = When(private=frozenset({AGENT.key}))
    async with plain(settings, database, followed=False) as store:
        for find in (store.meant, store.said):
            late = When(unexpired_at=soon + timedelta(seconds=1))
            assert "a" not in await find("ana lives in lyon", when=late)
            assert "a" in await find("ana lives in lyon", when=When(unexpired_at=soon - timedelta(seconds=1)))
            assert await find("lyon", AGENT, when=private) == []
            assert await find("ana lives in lyon", AGENT) == ["told"]


async def test_vectors_are_copied_again_once_a_tenth_has_changed_and_deleted_with_a_small_scope(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = [fact(f"f{n}", f"tea number {n}") for n in range(30)]
    await write(database, facts)
    copies = VectorCopies(database, NAMES)
    assert await copies.round() == 1
    before = {block["_id"] for block in await blocks(database)}
    await write(database, [retired("f0", "tea number 0", 2)])
    assert await copies.round() == 0
    await write(database, [fact(f"f{n}", f"coffee number {n}", 2) for n in range(1, 5)])
    assert await copies.round() == 1
    assert not before & {block["_id"] for block in await blocks(database)}
    monkeypatch.setattr(stored_vector_store, "LARGE_SCOPE", 100)
    assert await copies.round() == 0
    assert await database[NAMES["vectors"]].count_documents({}) == 0
