"""The search engine: queries → lists by meaning and by words → one order of facts."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from eden_memory.models.question import Asking, Embedder, Reranker
from eden_memory.schemas.scopes import Scope
from eden_memory.search.fact_candidates import Scored
from eden_memory.search.fusion import QueryLists
from eden_memory.search.listing import FactLists, Listing, SearchRun
from eden_memory.search.newer import Overtaking, tense_needed
from eden_memory.search.question_tense import QuestionTense
from eden_memory.search.question_times import spans_of
from eden_memory.search.ranking import (
    Ranking,
    Stage,
    after_reranking,
    asked_in,
    before_reranking,
    fused,
    related,
    reranked,
)
from eden_memory.search.search_requests import FoundFact, SearchReport, SearchRequest
from eden_memory.search.search_trace import Trace
from eden_memory.telemetry.request_spans import OpenSpan

RERANK_SECONDS = 5.0
NEVER = datetime.min.replace(tzinfo=UTC)
"""A reranker that takes longer is done without."""


class SearchEngine:
    """One for each process; any number of searches may run in it at once.

    A list, the embedder or the reranker that fails is done without, with a warning in the report; only where
    nothing is left to search with does the search fail, with that error. `found` is told the ids of the facts that
    a search returned, and must not wait. The embedder and the reranker may be providers: they get queries as `redact`
    leaves them, and nothing is lost by it, since stored texts are redacted too.
    """

    def __init__(
        self,
        lists: FactLists,
        embedder: Embedder,
        ranking: Ranking | None = None,
        *,
        reranker: Reranker | None = None,
        reflections: FactLists | None = None,
        found: Callable[[Sequence[str]], None] = lambda _: None,
        redact: Callable[[str], str] = str,
    ) -> None:
        self._listing, self._reranker = Listing(lists, embedder, reflections), reranker
        self._tense = QuestionTense(embedder)
        self._ranking, self._found, self._redact = ranking or Ranking(), found, redact

    async def find(
        self, scopes: Sequence[Scope], request: SearchRequest, asking: Asking | None = None
    ) -> SearchReport:
        """Memory of these scopes and of no other, best first; `asking`: on whose behalf the embedder is asked."""
        trace, by_key = Trace(), {scope.key: scope for scope in scopes}
        request = replace(request, queries=tuple(map(self._redact, request.queries)))
        with OpenSpan("search facts") as span:
            span.attributes |= {
                "eden.search.type": request.search_type,
                "eden.search.scopes": len(scopes),
                "eden.search.facts": 0,
            }
            if not request.texts or not by_key or request.top_k < 1:
                return trace.report(request.search_type, ())
            ranking = _as_asked(self._ranking, request)
            search = SearchRun(
                tuple(by_key), request.texts, request, ranking, asking or request.asking, trace
            )
            found = await self._ranked(await self._listing.of(search), search)
            visible = [scored for scored in found if scored.fact.scope_key in by_key]
            best = _sorted(self._worth_it(visible, request), request)
            facts = tuple(_fact(by_key[scored.fact.scope_key], scored) for scored in best)
            self._found([fact.fact_id for fact in facts if fact.kind == "fact"])
            span.attributes["eden.search.facts"] = len(facts)
            return trace.report(request.search_type, facts)

    async def _ranked(self, lists: Sequence[QueryLists], search: SearchRun) -> list[Scored]:
        request, ranking = search.request, search.ranking
        with search.trace.timed("fusion") as left:
            left.extend(fused(lists, ranking, request.search_type))
        spans = [span for query in search.queries for span in spans_of(query, request.asked_at)]
        found = _through(
            before_reranking(ranking, search.queries, spans, request.search_type), left, search.trace
        )
        found = await self._reranked(found, search)
        now = ranking.newer and request.when.is_now and not spans
        overtaking = await self._overtaking(found, lists, search) if now else frozenset[Overtaking]()
        last = after_reranking(ranking, request.asked_at, request.top_k, request.score_threshold, overtaking)
        return _through(last, found, search.trace)

    async def _overtaking(
        self, found: Sequence[Scored], lists: Sequence[QueryLists], search: SearchRun
    ) -> frozenset[Overtaking]:
        """The newer facts that are to stand above older ones; the examples are embedded only if there may be any."""
        needed = tense_needed(found, asked_in(search.queries), search.ranking.unrelated)
        if not needed:
            return frozenset()
        tense = await self._asked_tense(lists, search)
        return frozenset(pair for pair, least in needed.items() if tense > least)

    async def _asked_tense(self, lists: Sequence[QueryLists], search: SearchRun) -> float:
        """Of a question that cannot be compared: neither the present nor the past."""
        vectors = [query.vector for query in lists if query.vector is not None]
        try:
            return await self._tense.of(vectors, search.asking)
        except Exception as error:  # noqa: BLE001 - the edge where an embedder that failed becomes a warning
            search.trace.degraded("newer", error)
            return 0.0

    def _worth_it(self, found: list[Scored], request: SearchRequest) -> list[Scored]:
        """The best, without those that are not related enough: none that is worse takes their place."""
        best = found[: request.top_k]
        if not request.related:
            return best
        return related(best, request.texts, request.related, self._ranking.unrelated)

    async def _reranked(self, found: list[Scored], search: SearchRun) -> list[Scored]:
        """The best of them by what the reranker says; as they were where it fails."""
        if self._reranker is None or not found:
            return found
        try:
            with search.trace.timed("rerank") as left:
                pool = found[: search.ranking.rerank_pool]
                async with asyncio.timeout(RERANK_SECONDS):
                    best = await _relevances(
                        self._reranker, search.queries, [scored.fact.text for scored in pool]
                    )
                left.extend(reranked(pool, best, search.ranking.rerank_least))
        except Exception as error:  # noqa: BLE001 - the edge where a reranker that failed becomes a warning
            search.trace.degraded("rerank", error)
            return found
        return left


async def _relevances(reranker: Reranker, queries: Sequence[str], texts: Sequence[str]) -> list[float]:
    """Of each text to the query that it answers best."""
    said = await asyncio.gather(*(reranker.relevances(query, texts) for query in queries))
    return [max(of_one) for of_one in zip(*said, strict=True)]


def _as_asked(ranking: Ranking, request: SearchRequest) -> Ranking:
    weight, size = request.recency_weight, request.list_size
    if weight is None and size is None:
        return ranking
    return replace(
        ranking,
        recency_weight=ranking.recency_weight if weight is None else weight,
        list_size=ranking.list_size if size is None else size,
    )


def _through(stages: Sequence[Stage], found: list[Scored], trace: Trace) -> list[Scored]:
    for name, stage in stages:
        with trace.timed(name) as left:
            left.extend(stage(found))
        found = left
    return found


def _sorted(found: list[Scored], request: SearchRequest) -> list[Scored]:
    if request.sort == "score":
        return found
    return sorted(found, key=lambda scored: scored.fact.occurred_at or NEVER, reverse=True)


def _fact(scope: Scope, scored: Scored) -> FoundFact:
    fact = scored.fact
    return FoundFact(
        fact_id=fact.fact_id,
        content=fact.text,
        scope=scope,
        score=scored.score,
        formed_at=fact.formed_at,
        said_at=fact.said_at,
        occurred_at=fact.occurred_at,
        version=fact.version,
        valid_from=fact.valid_from,
        retired_at=fact.retired_at,
        kind=fact.kind,
        scores=scored.scores,
    )
