"""Scopes kept in a process: nothing asked while nothing changes, nothing shown that is gone, never too much kept."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest

from eden_memory.context.cached_contexts import Contexts
from eden_memory.context.context_feed import ContextChange
from eden_memory.context.recent_message_store import RecentMessages
from eden_memory.forgetting.mark_store import MongoForgetting
from eden_memory.schemas.scopes import Scope
from eden_memory.search import cached_scope_store
from eden_memory.search.fact_candidates import CachedFact, cached_facts
from eden_memory.search.plain_list_store import PlainFactLists, fact_lists, searches_by_atlas
from eden_memory.settings import Settings
from tests.integration.search.search_kit import (
    ANA,
    BEN,
    WORDS,
    Database,
    Stand,
    changed_fact,
    compared_by_hand,
    fact,
    forget,
    having_words,
    plain,
    retired,
    said_of,
    soon,
    write,
)
from tests.unit.formation.dedup.dedup_kit import WordEmbedder, embedded

pytestmark = pytest.mark.servers


async def test_a_warm_search_asks_mongodb_nothing(settings: Settings, database: Database) -> None:
    async with plain(settings, database, followed=True) as store:
        await store.write(fact("a", "ana lives in lyon"), fact("b", "ben lives in lyon", scope=BEN))
        await soon(lambda: store.said("lyon", ANA, BEN), ["a", "b"])
        await store.meant("lyon", ANA, BEN)
        asked = store.plain.queries
        for _ in range(5):
            assert await store.said("lyon", ANA, BEN) == ["a", "b"]
            assert await store.meant("ana lives in lyon", BEN) == ["b"]
        assert store.plain.queries == asked


async def test_a_change_is_read_by_itself(settings: Settings, database: Database) -> None:
    async with plain(settings, database, followed=True) as store:
        await store.write(*(fact(f"f{n}", f"tea number {n}") for n in range(50)))
        assert len(await store.said("tea", most=60)) == 50
        held = store.plain.cached_bytes
        await store.write(fact("new", "ana plays chess"))
        await soon(_after(store.plain, held), True)
        asked = store.plain.queries
        assert await store.meant("ana plays chess", least=0.99) == ["new"]
        await soon(lambda: store.said("chess"), ["new"])
        assert store.plain.queries == asked


def _after(lists: PlainFactLists, held: int) -> Callable[[], Awaitable[bool]]:
    async def grown() -> bool:
        return lists.cached_bytes > held

    return grown


async def test_what_is_kept_finds_what_comparing_everything_finds(
    settings: Settings, database: Database
) -> None:
    """With a stream, without one, and with one that goes away and comes back between."""
    dice = random.Random(5)
    async with plain(settings, database, followed=False) as store:
        versions: dict[str, int] = {}
        for turn in range(30):
            live = turn % 10 < 5
            if turn % 5 == 0:
                store.plain.changed(ContextChange("everything"))
                store.plain.live(live)
            batch = [changed_fact(dice, versions) for _ in range(dice.randint(1, 5))]
            await store.write(*batch)
            if dice.random() < 0.3:
                await forget(database, batch[-1])
            for one in batch if live else ():
                store.plain.changed(ContextChange("scope", one.scope.key))
            text = " ".join(dice.choices(WORDS, k=3))
            for scope in (ANA, BEN):
                near = await store.near(text, scope, most=8)
                exact, best = await compared_by_hand(database, scope, text)
                assert [exact[one.fact.fact_id, one.fact.text] for one in near] == best
                await soon(said_of(store, text, scope), await having_words(database, scope, text))


async def test_a_search_that_follows_the_push_never_shows_what_was_retired(
    settings: Settings, database: Database
) -> None:
    async with plain(settings, database, followed=False) as store:
        store.plain.live(True)
        for turn in range(20):
            text, name = f"ana likes tea {turn}", f"f{turn}"
            await store.write(fact(name, text))
            store.plain.changed(ContextChange("scope", ANA.key))
            assert await store.meant(text, most=1) == [name]
            await soon(lambda text=text: store.said(text, most=1), [name])
            await store.write(retired(name, text, 2))
            store.plain.changed(ContextChange("scope", ANA.key))
            shown = await asyncio.gather(
                *(find(text) for find in (store.said, store.meant) for _ in range(3))
            )
            assert name not in {one for found in shown for one in found}


async def test_a_stream_that_is_away_is_done_without(settings: Settings, database: Database) -> None:
    async with plain(settings, database, followed=True) as store:
        await store.write(fact("a", "ana lives in lyon"))
        await soon(lambda: store.said("lyon"), ["a"])
        store.plain.live(False)
        store.plain.changed(ContextChange("session", "s.one"))
        await store.write(fact("b", "ana left lyon"))
        assert set(await store.said("lyon")) == {"a", "b"}
        await store.write(retired("b", "ana left lyon", 2))
        assert await store.said("lyon") == ["a"]
        store.plain.changed(ContextChange("everything"))
        store.plain.live(True)
        assert await store.said("lyon") == ["a"]


async def test_memory_is_bounded_and_the_longest_unused_leaves(
    settings: Settings, database: Database
) -> None:
    told: list[tuple[int, int, int]] = []
    scopes = [Scope.of_user("s.agent", f"s.u{number}") for number in range(6)]
    for scope in scopes:
        await write(database, [fact(f"{scope.user_id}-{n}", f"tea {n}", scope=scope) for n in range(20)])

    def used(size: int, count: int, evicted: int) -> None:
        told.append((size, count, evicted))

    options: dict[str, Any] = {"most_bytes": 150_000, "on_use": used}
    async with plain(settings, database, followed=True, **options) as store:
        for scope in (*scopes, scopes[0]):
            assert len(await store.said("tea", scope, most=50)) == 20
            assert len(await store.meant("tea", scope, most=50, least=0)) == 20
            assert 0 < store.plain.cached_bytes <= 150_000
        assert 1 < store.plain.cached_scopes < len(scopes)
        asked = store.plain.queries
        for scope in (scopes[0], *scopes[::-1][: store.plain.cached_scopes - 1]):
            assert len(await store.said("tea", scope, most=50)) == 20
        assert store.plain.queries == asked
        assert told[-1][:2] == (store.plain.cached_bytes, store.plain.cached_scopes)
        assert sum(evicted for *_, evicted in told) >= len(scopes) - store.plain.cached_scopes
        assert len(await store.said("tea", *scopes, most=500)) == 120


async def test_a_first_search_that_broke_off_leaves_nothing_that_is_retired_since(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = [fact(f"f{number}", f"tea {number}") for number in range(120)]
    for start in range(0, 120, 20):
        await write(database, facts[start : start + 20])
    monkeypatch.setattr(cached_scope_store, "AT_ONCE", 10)
    async with plain(settings, database, followed=False) as store:
        with monkeypatch.context() as patch:
            patch.setattr(cached_scope_store, "cached_facts", _failing_at(3))
            with pytest.raises(ConnectionError):
                await store.said("tea")
        await store.write(retired("f0", "tea 0", 2))
        assert len(await store.said("tea", most=200)) == 119
        assert "f0" not in await store.meant("tea 0", most=200, least=0)


def _failing_at(batch: int) -> Callable[[bytes, str], dict[str, CachedFact | None]]:
    counted = count(1)

    def read(documents: bytes, model: str) -> dict[str, CachedFact | None]:
        if next(counted) == batch:
            raise ConnectionError
        return cached_facts(documents, model)

    return read


async def test_a_restart_finds_the_same(settings: Settings, database: Database) -> None:
    await write(database, [fact("a", "ana lives in lyon"), fact("b", "ana left porto")])
    await write(database, [retired("b", "ana left porto", 2)])
    found: list[list[str]] = []
    for _ in range(2):
        async with plain(settings, database, followed=True) as store:
            found.append([*await store.said("lyon porto"), *await store.meant("ana left porto", least=0.6)])
    assert found[0] == found[1] == ["a", "a"]


async def test_another_models_vectors_are_not_compared(settings: Settings, database: Database) -> None:
    others = embedded("ana lives in lyon", "another")
    await write(database, [fact("a", "ana lives in lyon"), fact("b", "lyon", embedding=others)])
    async with plain(settings, database, followed=True) as store:
        assert await store.meant("ana lives in lyon", least=0) == ["a"]
        assert set(await store.said("lyon")) == {"a", "b"}
        await store.write(fact("b", "lyon", 2, embedding=embedded("ana lives in lyon")))
        await soon(lambda: _set(store), {"a", "b"})


async def _set(store: Any) -> set[str]:
    return set(await store.meant("ana lives in lyon", least=0))


async def test_auto_chooses_what_the_server_has(settings: Settings, database: Database) -> None:
    await write(database, [fact("a", "ana lives in lyon")])
    assert not await searches_by_atlas(settings, database)


async def test_one_change_stream_keeps_contexts_and_searched_scopes_fresh(
    settings: Settings, database: Database
) -> None:
    forgotten = MongoForgetting(database, settings.names)
    recent = RecentMessages(database, database, settings, forgotten, lambda: datetime.now(UTC))
    contexts = Contexts(database.client, database, database, settings, lambda: datetime.now(UTC), recent)
    lists = fact_lists(settings, database, WordEmbedder(), lambda _size, _scopes, _evicted: None, atlas=False)
    assert isinstance(lists, PlainFactLists)
    contexts.follow(lists)
    try:
        await contexts.ready()
        store = Stand(settings, database, lists)
        await store.write(fact("a", "ana lives in lyon"))
        await soon(lambda: store.meant("ana lives in lyon"), ["a"])
        asked = lists.queries
        assert await store.meant("ana lives in lyon") == ["a"]
        assert lists.queries == asked
        await store.write(retired("a", "ana lives in lyon", 2))
        await soon(lambda: store.meant("ana lives in lyon"), [])
    finally:
        await contexts.close()
        await lists.close()
