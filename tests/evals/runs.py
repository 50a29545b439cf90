"""One way of ranking, run over all conversations: the product's engine, or a baseline."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from eden_memory.evals.systems import PlainWords, Quality
from eden_memory.models.question import Reranker
from eden_memory.search.fact_candidates import NOW, Ranked
from eden_memory.search.ranking import Ranking
from eden_memory.search.ranking_stages import QueryLists, by_rank
from eden_memory.search.search_engine import SearchEngine
from eden_memory.search.search_requests import Kind as Search
from eden_memory.search.search_requests import SearchRequest
from tests.evals.conversations import SCOPE, Conversation, Kind, Question, conversations
from tests.evals.held import HeldFacts, KnownVectors
from tests.evals.measures import quality

EVERYTHING = 1_000_000


@dataclass(frozen=True, slots=True)
class Loaded:
    """A conversation, ready to be searched."""

    of: Conversation
    facts: HeldFacts
    vectors: KnownVectors
    bears: dict[str, frozenset[str]]


Order = Callable[[Loaded, Question], Awaitable[list[str]]]


@dataclass(frozen=True, slots=True)
class Judged:
    """A question's quality under one way of ranking."""

    conversation: str
    category: str
    quality: Quality


async def loaded(kind: Kind, vectors: KnownVectors) -> list[Loaded]:
    """All conversations as turns or facts; questions are embedded too."""
    read = conversations(kind)
    await vectors.learn([unit.fact.text for one in read for unit in one.units])
    await vectors.learn([asked.text for one in read for asked in one.questions])
    return [await _loaded(one, vectors) for one in read]


async def _loaded(one: Conversation, vectors: KnownVectors) -> Loaded:
    facts = await vectors.with_vectors([unit.fact for unit in one.units])
    return Loaded(one, HeldFacts(facts), vectors, {unit.fact.fact_id: unit.bears for unit in one.units})


async def judged(where: Sequence[Loaded], order: Order) -> list[Judged]:
    """Every question of every conversation."""
    return [
        Judged(one.of.name, asked.category, quality(await order(one, asked), one.bears, asked.evidence))
        for one in where
        for asked in one.of.questions
    ]


def engine(ranking: Ranking, search: Search = "hybrid", reranker: Reranker | None = None) -> Order:
    """The product, with these settings; a reranker that fails or is too slow fails the measurement, too."""

    async def order(one: Loaded, asked: Question) -> list[str]:
        request = SearchRequest((asked.text,), search_type=search, asked_at=one.of.asked_at)
        found = await SearchEngine(one.facts, one.vectors, ranking, reranker=reranker).find([SCOPE], request)
        assert not found.warnings, found.warnings
        return [fact.fact_id for fact in found.facts]

    return order


async def rrf_60(one: Loaded, asked: Question) -> list[str]:
    """The baseline: reciprocal ranks of both whole lists, k = 60."""
    vector = (await one.vectors.embed([asked.text]))[0].vector
    semantic = await one.facts.semantic((), [vector], EVERYTHING, 0.0, NOW)
    textual = await one.facts.textual((), [asked.text], EVERYTHING, 0.0, NOW)
    return [found.fact.fact_id for found in by_rank([QueryLists(semantic[0], textual[0])], 60.0)]


def rrf_60_of(words: Mapping[str, PlainWords]) -> Order:
    """The same over plain BM25."""

    async def order(one: Loaded, asked: Question) -> list[str]:
        vector = (await one.vectors.embed([asked.text]))[0].vector
        semantic = (await one.facts.semantic((), [vector], EVERYTHING, 0.0, NOW))[0]
        facts = {found.fact.fact_id: found.fact for found in semantic}
        ids = words[one.of.name].order(asked.text)
        textual = [Ranked(facts[name], 1.0) for name in ids]
        return [found.fact.fact_id for found in by_rank([QueryLists(semantic, textual)], 60.0)]

    return order
