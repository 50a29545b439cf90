"""The lists of one search: by meaning and by words, side by side; one that fails is done without."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from eden_memory.errors import OverBudget
from eden_memory.models.question import Asking, Embedder
from eden_memory.search.fact_candidates import Ranked, When
from eden_memory.search.fusion import QueryLists
from eden_memory.search.ranking import Ranking
from eden_memory.search.search_requests import SearchRequest
from eden_memory.search.search_trace import SHOWN, Trace

Lists = Sequence[Sequence[Ranked]]


class FactLists(Protocol):
    """Facts to rank: those of the named scopes, and of no other, by meaning or by words.

    One list for each vector or query, over all scopes together, best first, at most `most` with a score of at least
    `least`; the same fact is in a list once. Scores: semantic (1 + cosine) / 2; textual as each store documents.
    """

    async def semantic(
        self, scope_keys: Sequence[str], vectors: Sequence[bytes], most: int, least: float, when: When
    ) -> Sequence[Sequence[Ranked]]:
        """Near packed float32 vectors of the embedder's model; a fact of another model's vector is left out."""
        ...

    async def textual(
        self, scope_keys: Sequence[str], queries: Sequence[str], most: int, least: float, when: When
    ) -> Sequence[Sequence[Ranked]]:
        """By the words of each query: data, never syntax."""
        ...


@dataclass(frozen=True, slots=True)
class SearchRun:
    """One search under way."""

    keys: tuple[str, ...]
    """Of the scopes, and of no other."""
    queries: tuple[str, ...]
    request: SearchRequest
    ranking: Ranking
    asking: Asking | None
    trace: Trace

    @property
    def when(self) -> When:
        """Which facts are candidates: none that is hidden or has expired takes the place of another."""
        when = self.request.when
        moment = None if when.include_retired else when.as_of or self.request.asked_at
        return replace(when, private=self.request.private, unexpired_at=moment)


class Listing:
    """Asks the embedder once, and each kind of list once."""

    def __init__(self, lists: FactLists, embedder: Embedder, reflections: FactLists | None = None) -> None:
        self._lists, self._embedder, self._reflections = lists, embedder, reflections

    async def of(self, search: SearchRun) -> list[QueryLists]:
        """Return what each query found; raises a part's error only if no other part was asked, or answered."""
        kind = search.request.search_type
        meaning, words = await asyncio.gather(
            self._semantic(search) if kind != "text" else _nothing(),
            self._textual(search) if kind != "semantic" else _nothing(),
            return_exceptions=True,
        )
        failed = {
            name: error
            for name, error in (("semantic", meaning), ("text", words))
            if isinstance(error, BaseException)
        }
        for name, error in failed.items():
            if not isinstance(error, Exception):
                raise error
            search.trace.degraded(name, error)
        by_meaning = None if isinstance(meaning, BaseException) else meaning
        by_words = None if isinstance(words, BaseException) else words
        if failed and by_meaning is None and by_words is None:
            raise next(iter(failed.values()))
        if kind == "hybrid" and "semantic" in failed:
            over = any(isinstance(error, OverBudget) for error in failed.values())
            search.trace.text_only = "over_budget" if over else "unavailable"
        return _by_query(len(search.queries), by_meaning, by_words)

    async def _semantic(self, search: SearchRun) -> tuple[Lists, list[bytes]]:
        begun = time.perf_counter()
        vectors = [
            embedding.vector for embedding in await self._embedder.embed(search.queries, search.asking)
        ]
        search.trace.ran("embedding", begun, len(vectors))
        begun, ranking = time.perf_counter(), search.ranking
        asked = self._of_kinds(
            search,
            lambda store: store.semantic(
                search.keys, vectors, ranking.most, ranking.semantic_least, search.when
            ),
        )
        lists = _of_both(search, *await asyncio.gather(*asked, return_exceptions=True))
        search.trace.ran("semantic", begun, sum(map(len, lists)), _shown(lists))
        return lists, vectors

    async def _textual(self, search: SearchRun) -> Lists:
        begun, ranking = time.perf_counter(), search.ranking
        asked = self._of_kinds(
            search,
            lambda store: store.textual(
                search.keys, search.queries, ranking.most, ranking.text_least, search.when
            ),
        )
        lists = _of_both(search, *await asyncio.gather(*asked, return_exceptions=True))
        search.trace.ran("text", begun, sum(map(len, lists)), _shown(lists))
        return lists

    def _of_kinds(
        self, search: SearchRun, ask: Callable[[FactLists], Awaitable[Lists]]
    ) -> tuple[Awaitable[Lists], Awaitable[Lists]]:
        """Return each query's list of facts, and of reflections; none of a kind that is not searched."""
        kinds = search.request.kinds
        return (
            ask(self._lists) if "facts" in kinds else _no_lists(),
            ask(self._reflections) if self._reflections and "reflections" in kinds else _no_lists(),
        )


async def _no_lists() -> Lists:
    return ()


def _of_both(search: SearchRun, facts: Lists | BaseException, reflections: Lists | BaseException) -> Lists:
    """Return each query's list over the kinds that are searched; reflections that fail are left out of both."""
    if isinstance(facts, BaseException):
        raise facts
    if isinstance(reflections, Exception) and "facts" in search.request.kinds:
        search.trace.degraded("reflections", reflections)
        return _visible(facts, search)
    if isinstance(reflections, BaseException):
        raise reflections
    return _visible(_together(facts, reflections), search)


def _together(facts: Lists, reflections: Lists) -> Lists:
    """Return the lists of both kinds as one for each query, best first."""
    if not facts or not reflections:
        return facts or reflections
    return [
        sorted((*of_facts, *of_reflections), key=lambda ranked: -ranked.score)
        for of_facts, of_reflections in zip(facts, reflections, strict=True)
    ]


async def _nothing() -> None:
    return None


def _by_query(
    queries: int, meaning: tuple[Lists, list[bytes]] | None, words: Lists | None
) -> list[QueryLists]:
    return [
        QueryLists(
            semantic=meaning[0][number] if meaning is not None else None,
            textual=words[number] if words is not None else None,
            vector=meaning[1][number] if meaning is not None else None,
        )
        for number in range(queries)
    ]


def _visible(lists: Lists, search: SearchRun) -> Lists:
    """Only facts of the scopes that were asked for, and none that is hidden or has expired."""
    when = search.when
    return [
        [entry for entry in ranked if entry.fact.scope_key in search.keys and not entry.fact.is_hidden(when)]
        for ranked in lists
    ]


def _shown(lists: Lists) -> list[tuple[str, float]]:
    return [(entry.fact.fact_id, entry.score) for ranked in lists for entry in ranked[:SHOWN]]
