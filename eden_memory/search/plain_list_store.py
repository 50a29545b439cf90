"""Rank facts on a plain replica set: exact cosine and BM25 in this process, over cached scopes.

The first search of a scope reads it; afterwards a change feed keeps it current, and a search sends no query.
"""

import asyncio
from collections.abc import Sequence
from heapq import nsmallest
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.context.context_feed import ContextChange
from eden_memory.logs import LibraryLogger
from eden_memory.models.question import Asking, Embedder
from eden_memory.names import Names
from eden_memory.search.atlas_list_store import AtlasFactLists, has_search
from eden_memory.search.cached_scope import CachedScope
from eden_memory.search.cached_scope_store import CachedScopes, OnUse
from eden_memory.search.fact_candidates import Ranked, When, checked
from eden_memory.search.text_index import AskedWord, asked_words, together
from eden_memory.search.unindexed_list_store import PointInTimeLists
from eden_memory.settings import Settings

log = LibraryLogger()


MOST_BYTES = 1_000_000_000

Scored = tuple[float, str, CachedScope]


class PlainFactLists:
    """FactLists over `facts` and `snapshots`.

    `model` names the embedder's model. The `embedder` only computes vectors of texts that are no longer true
    (`When`); without one, searches find those by their words alone. CachedScopes calls `on_use`.

    A change feed calls :meth:`changed` and :meth:`live`. Until it is live, each search asks MongoDB whether the
    scopes have changed.
    """

    def __init__(
        self,
        database: AsyncDatabase[dict[str, Any]],
        names: Names,
        model: str,
        *,
        embedder: Embedder | None = None,
        most_bytes: int = MOST_BYTES,
        on_use: OnUse = lambda _bytes, _scopes, _evicted: None,
    ) -> None:
        self._scopes = CachedScopes(database, names, model, most_bytes, on_use)
        self._then = PointInTimeLists(database, names, model, embedder)

    @property
    def cached_bytes(self) -> int:
        """The approximate size of the cached scopes."""
        return self._scopes.size

    @property
    def cached_scopes(self) -> int:
        """The number of cached scopes."""
        return len(self._scopes)

    @property
    def queries(self) -> int:
        """The number of queries that searches of the present have sent to MongoDB."""
        return self._scopes.queries

    def changed(self, changed: ContextChange) -> None:
        """Read again what a change has made outdated."""
        if changed.what in ("scope", "everything"):
            self._scopes.changed(changed.id or None)

    def live(self, live: bool) -> None:
        """Note whether :meth:`changed` will be called for every change from now on."""
        self._scopes.live(live)

    async def filled(self) -> None:
        """Wait for documents and words that are read in the background."""
        await self._scopes.filled()

    async def close(self) -> None:
        """End the background tasks."""
        await self._scopes.close()

    async def semantic(
        self,
        scope_keys: Sequence[str],
        vectors: Sequence[bytes],
        most: int,
        least: float,
        when: When,
        asking: Asking | None = None,
    ) -> Sequence[Sequence[Ranked]]:
        """Return the nearest facts of each vector, exact; scores (1 + cosine) / 2."""
        keys = checked(scope_keys)
        if not keys or not vectors or most < 1:
            return [[] for _ in vectors]
        if not when.is_warm:
            return await self._then.semantic(keys, vectors, most, least, when, asking)
        async with self._scopes.current(keys) as scopes:
            hits = await asyncio.gather(*(scope.nearest(vectors, most, least, when) for scope in scopes))
            lists: list[list[Scored]] = [[] for _ in vectors]
            for scope, found in zip(scopes, hits, strict=True):
                for scored, near in zip(lists, found, strict=True):
                    scored.extend((-hit.similarity, hit.fact_id, scope) for hit in near)
            return await self._shown(scopes, lists, most)

    async def textual(
        self, scope_keys: Sequence[str], queries: Sequence[str], most: int, least: float, when: When
    ) -> Sequence[Sequence[Ranked]]:
        """Return each query's facts by BM25 (k1 1.2, b 0.75; word rarity is counted over these scopes together)."""
        keys = checked(scope_keys)
        asked = [asked_words(query) for query in queries]
        if not keys or not any(asked) or most < 1:
            return [[] for _ in queries]
        if not when.is_warm:
            return await self._then.textual(keys, asked, most, least, when)
        async with self._scopes.current(keys) as scopes:
            await self._words_ready(scopes)
            lists = [await self._by_words(scopes, words, most, least, when) for words in asked]
            return await self._shown(scopes, lists, most)

    async def _words_ready(self, scopes: Sequence[CachedScope]) -> None:
        """Index the words of scopes that were never indexed or have no change feed."""
        waiting = [
            scope
            for scope in scopes
            if scope.words_waiting
            and scope.left_out is None
            and not (scope.has_words and self._scopes.is_live)
        ]
        if waiting:
            await asyncio.gather(*(scope.words_ready() for scope in waiting))

    async def _shown(
        self, scopes: Sequence[CachedScope], lists: Sequence[list[Scored]], most: int
    ) -> list[list[Ranked]]:
        """Return the best facts of all scopes, without those that were retired during the search."""
        await self._scopes.catch_up(scopes)
        best = [nsmallest(most, scored, key=lambda entry: entry[:2]) for scored in lists]
        for scope, fact_ids in _by_scope([entry for entries in best for entry in entries]).items():
            await self._scopes.read_documents(scope, fact_ids)
        return [_ranked(entries) for entries in best]

    async def _by_words(
        self,
        scopes: Sequence[CachedScope],
        words: Sequence[AskedWord],
        most: int,
        least: float,
        when: When,
    ) -> list[Scored]:
        if not words:
            return []
        whole = [scope for scope in scopes if scope.left_out is None]
        rarity = together([scope.rarity(words) for scope in whole])
        found = [(scope, await scope.by_words(words, rarity, most, when)) for scope in whole]
        found += [
            (scope, await self._by_text(scope, words, most, when)) for scope in scopes if scope not in whole
        ]
        return [
            (-score, fact_id, scope) for scope, hits in found for fact_id, score in hits if score >= least
        ]

    async def _by_text(
        self, scope: CachedScope, words: Sequence[AskedWord], most: int, when: When
    ) -> list[tuple[str, float]]:
        """Return facts by MongoDB's text index, for a scope whose own words are not indexed yet."""
        hits = await self._scopes.by_text(
            scope, [word.word for word in words], most + len(scope.hidden(when))
        )
        await self._scopes.read_documents(scope, [fact_id for fact_id, _ in hits])
        hidden = scope.hidden(when)  # facts without a vector are known only now
        return [hit for hit in hits if hit[0] not in hidden][:most]


def _by_scope(best: Sequence[Scored]) -> dict[CachedScope, list[str]]:
    ids_of: dict[CachedScope, list[str]] = {}
    for _, fact_id, scope in best:
        ids_of.setdefault(scope, []).append(fact_id)
    return ids_of


def _ranked(best: Sequence[Scored]) -> list[Ranked]:
    facts = {scope: scope.found(fact_ids) for scope, fact_ids in _by_scope(best).items()}
    return [
        Ranked(facts[scope][fact_id], -score) for score, fact_id, scope in best if fact_id in facts[scope]
    ]


Database = AsyncDatabase[dict[str, Any]]


async def searches_by_atlas(settings: Settings, database: Database) -> bool:
    """Return whether Atlas' search indexes rank facts, rather than this process."""
    adapter = settings.search.adapter
    atlas = adapter == "atlas" or (adapter == "auto" and await has_search(database, settings.names))
    log.info("facts are searched", by="atlas" if atlas else "this process", asked_for=adapter)
    return atlas


def fact_lists(
    settings: Settings, database: Database, embedder: Embedder, on_use: OnUse, *, atlas: bool
) -> AtlasFactLists | PlainFactLists:
    """Build the lists; plain ones ask MongoDB for revisions until a change feed keeps them fresh."""
    if atlas:
        return AtlasFactLists(database, settings.names, embedder.model, embedder=embedder)
    return PlainFactLists(
        database,
        settings.names,
        embedder.model,
        embedder=embedder,
        most_bytes=settings.search.memory_bytes,
        on_use=on_use,
    )
