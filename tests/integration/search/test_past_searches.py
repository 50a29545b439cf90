"""Searches of what was known then are bounded: so many at once, so many texts embedded, so many vectors kept."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from eden_memory.models.question import Asking
from eden_memory.schemas.provenance import Embedding
from eden_memory.schemas.scopes import Scope
from eden_memory.search import unindexed_list_store
from eden_memory.search import unindexed_list_store as known_then
from eden_memory.search.fact_candidates import When
from eden_memory.search.unindexed_list_store import READING
from eden_memory.settings import Settings
from tests.integration.search.search_kit import Database, fact, plain, retired, write
from tests.unit.formation.dedup.dedup_kit import WordEmbedder

pytestmark = pytest.mark.servers
RETIRED = When(include_retired=True)


class Held(WordEmbedder):
    """Answers once the gate is open; `there` once so many wait for it."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most, self._waiting = most, 0
        self.there, self.gate = asyncio.Event(), asyncio.Event()

    async def embed(self, texts: Sequence[str], asking: Asking | None = None) -> Sequence[Embedding]:
        self._waiting += 1
        if self._waiting == self._most:
            self.there.set()
        await self.gate.wait()
        return await super().embed(texts, asking)


async def test_only_so_many_read_whole_scopes_at_the_same_time(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    scopes = [Scope.of_user("s.agent", f"s.u{number}") for number in range(3 * READING)]
    texts = {scope: f"ana lived in town{number}" for number, scope in enumerate(scopes)}
    for scope, text in texts.items():
        name = scope.user_id or ""
        await write(database, [fact(name, text, scope=scope)])
        await write(database, [retired(name, text, 2, scope=scope)])
    begun: list[Sequence[str]] = []
    read: Any = known_then.PointInTimeLists._known  # pyright: ignore[reportPrivateUsage]

    async def noted(self: object, scope_keys: Sequence[str], when: When) -> object:
        begun.append(scope_keys)
        return await read(self, scope_keys, when)

    monkeypatch.setattr(known_then.PointInTimeLists, "_known", noted)
    embedder = Held(READING)
    async with plain(settings, database, followed=False, embedder=embedder) as store, asyncio.timeout(60):
        searches = [
            asyncio.create_task(store.meant(text, scope, when=RETIRED)) for scope, text in texts.items()
        ]
        await embedder.there.wait()
        assert len(begun) == READING
        embedder.gate.set()
        assert await asyncio.gather(*searches) == [[scope.user_id] for scope in scopes]
    assert len(begun) == len(scopes)


async def test_texts_that_hold_no_longer_are_embedded_up_to_a_number_the_newest_first(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unindexed_list_store, "MOST_EMBEDDED", 3)
    monkeypatch.setattr(unindexed_list_store, "MOST_VECTORS", 2)
    for number in range(5):
        await write(database, [fact(f"f{number}", f"tea{number}")])
        await write(database, [retired(f"f{number}", f"tea{number}", number + 2)])
    embedder = WordEmbedder()
    async with plain(settings, database, followed=False, embedder=embedder) as store:
        assert set(await store.meant("tea4", least=0, when=RETIRED)) == {"f2", "f3", "f4"}
        assert await store.said("tea0", when=RETIRED) == ["f0"]
        assert await store.meant("tea4", most=1, when=RETIRED) == ["f4"]
    first, again = embedder.calls
    assert set(first) == {"tea2", "tea3", "tea4"}
    assert len(again) == 1
