"""The search engine: queries → lists by meaning and by words → one order of facts, with a trace of each stage."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import ceil
from typing import Protocol

from eden_memory.errors import OverBudget
from eden_memory.logs import LibraryLogger
from eden_memory.metrics import SEARCH_DEGRADED, SEARCH_SECONDS, SEARCHES
from eden_memory.models.question import Asking, Embedder, Reranker
from eden_memory.schemas.scopes import Scope
from eden_memory.search.fact_candidates import Ranked, Scored, When
from eden_memory.search.question_times import OWN_AND_OTHER, PRESENT_AND_PAST, QuestionKind, spans_of
from eden_memory.search.ranking import (
    LISTED,
    RERANK_POOL,
    Ranking,
    Stage,
    after_reranking,
    asked_for,
    asked_in,
    before_reranking,
    fused,
    reranked,
    with_relevance,
)
from eden_memory.search.ranking_stages import Overtaking, QueryLists, tense_needed
from eden_memory.search.search_requests import FoundFact, SearchReport, SearchRequest, StageReport, TextOnly
from eden_memory.search.text_index import words_asked
from eden_memory.telemetry.spans import OpenSpan

log = LibraryLogger()


SHOWN = 50
"""Most scores of a stage in a report."""

for _part in ("embedding", "semantic", "text", "reflections", "rerank", "kind"):
    SEARCH_DEGRADED.labels(_part)


class Trace:
    """The trace of one search; stages that run side by side each count their own time."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._stages: list[StageReport] = []
        self.warnings: list[str] = []
        self.text_only: TextOnly | None = None

    @contextmanager
    def timed(self, name: str) -> Generator[list[Scored]]:
        """Time a stage; the block puts the candidates that remain into the list."""
        begun, left = time.perf_counter(), list[Scored]()
        yield left
        self.ran(name, begun, len(left), ((scored.fact.fact_id, scored.score) for scored in left[:SHOWN]))

    def ran(self, name: str, begun: float, count: int, scores: Iterable[tuple[str, float]] = ()) -> None:
        """Record the end of a stage that began at `begun` (time.perf_counter)."""
        seconds = time.perf_counter() - begun
        self._stages.append(StageReport(name, 1000 * seconds, count, tuple(scores)))
        SEARCH_SECONDS.labels(name).observe(seconds)

    def degraded(self, part: str, error: Exception) -> None:
        """Continue without a failed part; the reason never contains the query."""
        reason = f"{part}: {type(error).__name__}"
        self.warnings.append(reason)
        log.warning("a search does without a part", part=part, error=type(error).__name__)
        SEARCH_DEGRADED.labels(part).inc()

    def report(self, kind: str, facts: tuple[FoundFact, ...]) -> SearchReport:
        """Return the whole trace."""
        seconds = time.perf_counter() - self._begun
        SEARCHES.labels(kind, "something" if facts else "nothing").inc()
        SEARCH_SECONDS.labels("all").observe(seconds)
        return SearchReport(facts, tuple(self._stages), tuple(self.warnings), 1000 * seconds, self.text_only)


Lists = Sequence[Sequence[Ranked]]


class FactLists(Protocol):
    """Facts to rank: those of the named scopes, and of no other, by meaning or by words.

    One list for each vector or query, over all scopes together, best first, at most `most` with a score of at least
    `least`; the same fact is in a list once. Scores: semantic (1 + cosine) / 2; textual as each store documents.
    """

    async def semantic(
        self,
        scope_keys: Sequence[str],
        vectors: Sequence[bytes],
        most: int,
        least: float,
        when: When,
        asking: Asking | None = None,
    ) -> Sequence[Sequence[Ranked]]:
        """Near packed float32 vectors of the embedder's model; a fact of another model's vector is left out.

        `asking`: on whose behalf an embedder is asked for vectors that are not stored.
        """
        ...

    async def textual(
        self, scope_keys: Sequence[str], queries: Sequence[str], most: int, least: float, when: When
    ) -> Sequence[Sequence[Ranked]]:
        """Return facts by the words of each query, which are data, never syntax."""
        ...


@dataclass(frozen=True, slots=True)
class SearchRun:
    """One search in progress."""

    keys: tuple[str, ...]
    """Facts of the given scopes, and of no other."""
    queries: tuple[str, ...]
    request: SearchRequest
    ranking: Ranking
    asking: Asking | None
    trace: Trace

    @property
    def when(self) -> When:
        """Return which facts are candidates: no hidden or expired one takes the place of another."""
        when = self.request.when
        moment = None if when.include_retired else when.as_of or self.request.asked_at
        return replace(when, private=self.request.private, unexpired_at=moment)

    @property
    def most(self) -> int:
        """Facts at most: `top_k` for each query."""
        return self.request.top_k * len(self.queries)


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
                search.keys, vectors, ranking.most, ranking.semantic_least, search.when, search.asking
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


def _of_substance(messages: Sequence[str]) -> tuple[str, ...]:
    """Return those with two words: with one, as in "thanks", nobody asks for anything remembered."""
    return tuple(message for message in messages if len(words_asked(message)) > 1)


def _visible(lists: Lists, search: SearchRun) -> Lists:
    """Keep only facts of the requested scopes, without hidden or expired ones."""
    when = search.when
    return [
        [entry for entry in ranked if entry.fact.scope_key in search.keys and not entry.fact.is_hidden(when)]
        for ranked in lists
    ]


def _shown(lists: Lists) -> list[tuple[str, float]]:
    return [(entry.fact.fact_id, entry.score) for ranked in lists for entry in ranked[:SHOWN]]


RERANK_SECONDS = 5.0
"""Seconds after which the search continues without the reranker."""

NEVER = datetime.min.replace(tzinfo=UTC)
"""Sorts facts that do not say when something happened behind all others."""


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
        self._tense, self._asks = (
            QuestionKind(embedder, PRESENT_AND_PAST),
            QuestionKind(embedder, OWN_AND_OTHER),
        )
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
            texts = _of_substance(request.texts) if request.related else request.texts
            if not texts or not by_key or request.top_k < 1:
                return trace.report(request.search_type, ())
            ranking = _as_asked(self._ranking, request)
            search = SearchRun(tuple(by_key), texts, request, ranking, asking or request.asking, trace)
            lists = await self._listing.of(search)
            found = await self._ranked(lists, search)
            visible = [scored for scored in found if scored.fact.scope_key in by_key]
            worth = await self._worth_it(visible, lists, search)
            best = _sorted(with_relevance(worth, search.queries, ranking.unrelated), request)
            facts = tuple(_fact(by_key[scored.fact.scope_key], scored) for scored in best)
            self._found([fact.fact_id for fact in facts if fact.kind == "fact"])
            span.attributes["eden.search.facts"] = len(facts)
            return trace.report(request.search_type, facts)

    async def _ranked(self, lists: Sequence[QueryLists], search: SearchRun) -> list[Scored]:
        request, ranking = search.request, search.ranking
        with search.trace.timed("fusion") as left:
            left.extend(fused(lists, ranking, request.search_type))
        spans = [span for query in search.queries for span in spans_of(query, request.asked_at)]
        asked = asked_in(search.queries)
        found = _through(before_reranking(ranking, asked, spans, request.search_type), left, search.trace)
        found = await self._reranked(found, search)
        now = ranking.newer and request.when.is_now and not spans
        overtaking = await self._overtaking(found, lists, search, asked) if now else frozenset[Overtaking]()
        last = after_reranking(ranking, request.asked_at, search.most, request.score_threshold, overtaking)
        return _through(last, found, search.trace)

    async def _overtaking(
        self, found: Sequence[Scored], lists: Sequence[QueryLists], search: SearchRun, asked: Set[str]
    ) -> frozenset[Overtaking]:
        """Return which newer facts go above older ones; the examples are embedded only if there may be any."""
        needed = tense_needed(found, asked, search.ranking.unrelated)
        if not needed:
            return frozenset()
        tense = await self._told(self._tense, lists, search)
        return frozenset(pair for pair, least in needed.items() if tense > least)

    async def _told(self, kind: QuestionKind, lists: Sequence[QueryLists], search: SearchRun) -> float:
        """Return the kind of a question, 0, neither of the two, if that cannot be told."""
        vectors = [query.vector for query in lists if query.vector is not None]
        try:
            return await kind.of(vectors, search.asking)
        except Exception as error:  # noqa: BLE001 - the edge where an embedder that failed becomes a warning
            search.trace.degraded("kind", error)
            return 0.0

    async def _worth_it(
        self, found: list[Scored], lists: Sequence[QueryLists], search: SearchRun
    ) -> list[Scored]:
        """Return the best facts, among them the best of each query; of a whole message, those that it asks for."""
        request, ranking = search.request, search.ranking
        if request.related and found:
            asks = await self._told(self._asks, lists, search)
            return asked_for(found, search.queries, request.top_k, ranking.unrelated, asks)
        if len(lists) < 2:
            return found[: search.most]
        each = [fused([query], ranking, request.search_type)[:1] for query in lists]
        bests = {scored.fact.fact_id for best in each for scored in best}
        others = [scored.fact.fact_id for scored in found if scored.fact.fact_id not in bests]
        kept = bests.union(others[: search.most - len(bests)])
        return [scored for scored in found if scored.fact.fact_id in kept]

    async def _reranked(self, found: list[Scored], search: SearchRun) -> list[Scored]:
        """Reorder the best facts by the reranker; keep their order if it fails."""
        if self._reranker is None or not found:
            return found
        try:
            with search.trace.timed("rerank") as left:
                pool = found[:RERANK_POOL]
                async with asyncio.timeout(RERANK_SECONDS):
                    best = await _relevances(
                        self._reranker, search.queries, [scored.fact.text for scored in pool]
                    )
                left.extend(reranked(pool, best))
        except Exception as error:  # noqa: BLE001 - the edge where a reranker that failed becomes a warning
            search.trace.degraded("rerank", error)
            return found
        return left


async def _relevances(reranker: Reranker, queries: Sequence[str], texts: Sequence[str]) -> list[float]:
    """Return the relevance of each text to the query that it answers best."""
    said = await asyncio.gather(*(reranker.relevances(query, texts) for query in queries))
    return [max(of_one) for of_one in zip(*said, strict=True)]


def _as_asked(ranking: Ranking, request: SearchRequest) -> Ranking:
    """Return the figures of one search: the request's own, and lists that are long enough for what it asks for.

    Hubs are not lowered for recall: its thresholds compare the best facts with those behind them, in scores as found.
    """
    weight, size = request.recency_weight, request.list_size
    if size is None and request.top_k * LISTED > ranking.most:
        size = ceil(request.top_k * LISTED)
    if weight is None and size is None and not request.related:
        return ranking
    return replace(
        ranking,
        recency_weight=ranking.recency_weight if weight is None else weight,
        list_size=ranking.list_size if size is None else size,
        hubs=0.0 if request.related else ranking.hubs,
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
