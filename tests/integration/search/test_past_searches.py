"""Searches of what was known then are bounded: so many at once, so many texts embedded, so many vectors kept."""

import asyncio
from collections.abc import Sequence

import pytest

from eden_memory.domain.search.candidates import When
from eden_memory.mongo.search import known_then
from eden_memory.ports import Asking
from eden_memory.settings import Settings
from schemas.provenance import Embedding
from schemas.scopes import Scope
from tests.integration.search.search_kit import Database, fact, plain, retired, write
from tests.unit.dedup.dedup_kit import WordEmbedder

pytestmark = pytest.mark.servers
RETIRED = When(include_retired=True)


class Together(WordEmbedder):
    """Waits until so many are inside at once, and notes how many ever were."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._all_there = asyncio.Barrier(most)
        self.inside = self.most = 0

    async def embed(self, texts: Sequence[str], asking: Asking | None = None) -> Sequence[Embedding]:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await self._all_there.wait()
        self.inside -= 1
        return await super().embed(texts, asking)


async def test_only_so_many_read_whole_scopes_at_the_same_time(
    settings: Settings, database: Database
) -> None:
    scopes = [Scope.of_user("s.agent", f"s.u{number}") for number in range(3 * known_then.READING)]
    texts = [f"ana lived in town{number}" for number in range(len(scopes))]
    for scope, text in zip(scopes, texts, strict=True):
        name = scope.user_id or ""
        await write(database, [fact(name, text, scope=scope)])
        await write(database, [retired(name, text, 2, scope=scope)])
    embedder = Together(known_then.READING)
    async with plain(settings, database, followed=False, embedder=embedder) as store, asyncio.timeout(30):
        found = await asyncio.gather(
            *(store.meant(text, scope, when=RETIRED) for scope, text in zip(scopes, texts, strict=True))
        )
    assert found == [[scope.user_id] for scope in scopes]
    assert embedder.most == known_then.READING


async def test_texts_that_hold_no_longer_are_embedded_up_to_a_number_the_newest_first(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_then, "MOST_EMBEDDED", 3)
    monkeypatch.setattr(known_then, "MOST_VECTORS", 2)
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
