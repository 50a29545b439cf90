"""The lists of one search: by meaning and by words, side by side; one that fails is done without."""

import asyncio
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from eden_memory.errors import OverBudget
from eden_memory.models.model_protocols import Embedder
from eden_memory.models.question import Asking
from eden_memory.models.reranking.candidates import Ranked, When
from eden_memory.search.fact_lists import FactLists
from eden_memory.search.fusion import QueryLists
from eden_memory.search.ranking import Ranking
from eden_memory.search.search_requests import SearchRequest
from eden_memory.search.search_trace import SHOWN, Trace

Lists = Sequence[Sequence[Ranked]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Search:
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
        """Which facts are candidates: none that is hidden takes the place of another."""
        return replace(self.request.when, private=self.request.private)


class Listing:
    """Asks the embedder once, and each kind of list once."""

    def __init__(self, lists: FactLists, embedder: Embedder) -> None:
        self._lists, self._embedder = lists, embedder

    async def of(self, search: Search) -> list[QueryLists]:
        """What each query found; the error of a part only where no other part was asked, or answered."""
        kind, failed = search.request.search_type, list[Exception]()
        meaning, words = await asyncio.gather(
            _tried(self._semantic(search), failed, search.trace, "semantic")
            if kind != "text"
            else _nothing(),
            _tried(self._textual(search), failed, search.trace, "text") if kind != "semantic" else _nothing(),
        )
        if failed and meaning is None and words is None:
            raise failed[0]
        if kind == "hybrid" and meaning is None:
            over = any(isinstance(exception, OverBudget) for exception in failed)
            search.trace.text_only = "over_budget" if over else "unavailable"
        return [
            QueryLists(
                semantic=meaning[0][number] if meaning is not None else None,
                textual=words[number] if words is not None else None,
                vector=meaning[1][number] if meaning is not None else None,
            )
            for number in range(len(search.queries))
        ]

    async def _semantic(self, search: Search) -> tuple[Lists, list[bytes]]:
        begun = time.perf_counter()
        vectors = [
            embedding.vector for embedding in await self._embedder.embed(search.queries, search.asking)
        ]
        search.trace.ran("embedding", begun, len(vectors))
        begun, ranking = time.perf_counter(), search.ranking
        found = await self._lists.semantic(
            search.keys, vectors, ranking.most, ranking.semantic_least, search.when
        )
        lists = _visible(found, search)
        search.trace.ran("semantic", begun, sum(map(len, lists)), _shown(lists))
        return lists, vectors

    async def _textual(self, search: Search) -> Lists:
        begun, ranking = time.perf_counter(), search.ranking
        found = await self._lists.textual(
            search.keys, search.queries, ranking.most, ranking.text_least, search.when
        )
        lists = _visible(found, search)
        search.trace.ran("text", begun, sum(map(len, lists)), _shown(lists))
        return lists


async def _tried(part: Awaitable[T], failed: list[Exception], trace: Trace, name: str) -> T | None:
    try:
        return await part
    except Exception as error:  # noqa: BLE001 - the edge where a list that failed becomes a warning
        failed.append(error)
        trace.degraded(name, error)
        return None


async def _nothing() -> None:
    return None


def _visible(lists: Lists, search: Search) -> Lists:
    """Only facts of the scopes that were asked for, and none that is hidden or has expired."""
    when, private = search.request.when, search.request.private
    now = when.as_of or search.request.asked_at
    return [
        [
            one
            for one in ranked
            if one.fact.scope_key in search.keys
            and not one.fact.hidden_from(private)
            and (when.include_retired or one.fact.expires_at is None or one.fact.expires_at > now)
        ]
        for ranked in lists
    ]


def _shown(lists: Lists) -> list[tuple[str, float]]:
    return [(one.fact.fact_id, one.score) for ranked in lists for one in ranked[:SHOWN]]
