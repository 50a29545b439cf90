"""Facts to rank on a plain replica set: exact cosine and BM25 in this process, over scopes that it keeps.

A scope is read with its first search, and from then on as the writer changes it: a warm search asks MongoDB nothing.
"""

import asyncio
from collections.abc import Sequence
from heapq import nsmallest
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.context.context_feed import ContextChange
from eden_memory.models.question import Embedder
from eden_memory.names import Names
from eden_memory.search.as_of_store import PointInTimeLists
from eden_memory.search.cached_scope import HeldScope
from eden_memory.search.cached_scope_store import HeldScopes, Kept
from eden_memory.search.fact_candidates import Ranked, When
from eden_memory.search.search_documents import checked
from eden_memory.search.text_index import AskedWord, asked_words, together

MOST_BYTES = 1_000_000_000
Scored = tuple[float, str, HeldScope]


class PlainFactLists:
    """FactLists over `facts` and `snapshots`.

    `model` names the embedder's model; the `embedder` itself is only asked for vectors of texts that hold no longer
    (`When`); without one these are found by their words alone. `kept`: as HeldScopes tells it.

    Somebody tells it of changes: :meth:`told` and :meth:`live`, as ContextFeed calls them. Until then each search
    asks MongoDB whether the scopes have changed.
    """

    def __init__(
        self,
        database: AsyncDatabase[dict[str, Any]],
        names: Names,
        model: str,
        *,
        embedder: Embedder | None = None,
        most_bytes: int = MOST_BYTES,
        kept: Kept = lambda _bytes, _scopes, _evicted: None,
    ) -> None:
        self._scopes = HeldScopes(database, names, model, most_bytes, kept)
        self._then = PointInTimeLists(database, names, model, embedder)

    @property
    def kept_bytes(self) -> int:
        """Bytes that the cached scopes take, about."""
        return self._scopes.size

    @property
    def kept_scopes(self) -> int:
        """How many scopes are kept."""
        return len(self._scopes)

    @property
    def queries(self) -> int:
        """Asked of MongoDB so far by searches for what holds now."""
        return self._scopes.queries

    def changed(self, scope_key: str | None) -> None:
        """A scope was written; None: any may have been."""
        self._scopes.changed(scope_key)

    def told(self, changed: ContextChange) -> None:
        """Drop what a change of a ContextFeed made stale."""
        if changed.what in ("scope", "everything"):
            self.changed(changed.id or None)

    def live(self, live: bool) -> None:
        """Whether :meth:`changed` is told of every change from now on."""
        self._scopes.live(live)

    async def close(self) -> None:
        """End what runs in the background."""
        await self._scopes.close()

    async def semantic(
        self, scope_keys: Sequence[str], vectors: Sequence[bytes], most: int, least: float, when: When
    ) -> Sequence[Sequence[Ranked]]:
        """For each vector the nearest facts, exact; scores (1 + cosine) / 2."""
        keys = checked(scope_keys)
        if not keys or not vectors or most < 1:
            return [[] for _ in vectors]
        if not when.is_now:
            return await self._then.semantic(keys, vectors, most, least, when)
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
        """For each query facts by BM25 (k1 1.2, b 0.75; how rare a word is counted over these scopes together)."""
        keys = checked(scope_keys)
        asked = [asked_words(query) for query in queries]
        if not keys or not any(asked) or most < 1:
            return [[] for _ in queries]
        if not when.is_now:
            return await self._then.textual(keys, asked, most, least, when)
        async with self._scopes.current(keys) as scopes:
            await self._words_ready(scopes)
            lists = [await _by_words(scopes, words, most, least, when) for words in asked]
            return await self._shown(scopes, lists, most)

    async def _words_ready(self, scopes: Sequence[HeldScope]) -> None:
        """New words of a scope that is followed are made findable beside the searches: in milliseconds."""
        waiting = [
            scope
            for scope in scopes
            if scope.words_waiting and not (scope.has_words and self._scopes.is_live)
        ]
        if waiting:
            await asyncio.gather(*(held_scope.words_ready() for held_scope in waiting))

    async def _shown(
        self, scopes: Sequence[HeldScope], lists: Sequence[list[Scored]], most: int
    ) -> list[list[Ranked]]:
        """The best of all scopes; without those that somebody said meanwhile do not hold any more."""
        await self._scopes.catch_up(scopes)
        return [_ranked(scored, most) for scored in lists]


async def _by_words(
    scopes: Sequence[HeldScope], words: Sequence[AskedWord], most: int, least: float, when: When
) -> list[Scored]:
    if not words:
        return []
    rarity = together([scope.rarity(words) for scope in scopes])
    found = [(scope, await scope.by_words(words, rarity, most, when)) for scope in scopes]
    return [(-score, fact_id, scope) for scope, hits in found for fact_id, score in hits if score >= least]


def _ranked(scored: Sequence[Scored], most: int) -> list[Ranked]:
    best = nsmallest(most, scored, key=lambda entry: entry[:2])
    ids_of: dict[HeldScope, list[str]] = {}
    for _, fact_id, scope in best:
        ids_of.setdefault(scope, []).append(fact_id)
    facts = {scope: scope.found(fact_ids) for scope, fact_ids in ids_of.items()}
    return [
        Ranked(facts[scope][fact_id], -score) for score, fact_id, scope in best if fact_id in facts[scope]
    ]
