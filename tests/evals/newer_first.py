"""How often the newer of two texts about the same is found above the older one, in a memory that holds them all."""

from collections.abc import Iterable, Sequence

from eden_memory.search.ranking import Ranking
from eden_memory.search.search_engine import SearchEngine
from eden_memory.search.search_requests import FoundFact, SearchRequest
from tests.evals.conversations import SCOPE
from tests.evals.held import HeldFacts, KnownVectors
from tests.evals.update_pairs import NOW, Pair, facts_of

Order = tuple[int, int]
"""Places of the older and of the newer text; of one that is not found, behind all."""


async def share_newer_first(
    memories: Iterable[Sequence[Pair]], vectors: KnownVectors, ranking: Ranking
) -> float:
    """Of all pairs; a newer text that is not found is not above."""
    memories = list(memories)
    pairs = [pair for own in memories for pair in own]
    await vectors.learn([text for one in pairs for text in (one.older, one.newer, one.question)])  # one load
    orders = [found for own in memories for found in await places(own, vectors, ranking)]
    return sum(newer < older for older, newer in orders) / len(orders)


async def places(own: Sequence[Pair], vectors: KnownVectors, ranking: Ranking) -> list[Order]:
    """Of each pair of one memory, by its question."""
    lists = HeldFacts(await vectors.with_vectors(facts_of(own, SCOPE.key)))
    engine = SearchEngine(lists, vectors, ranking)
    return [await _places(engine, pair.question, number) for number, pair in enumerate(own)]


async def _places(engine: SearchEngine, question: str, number: int) -> Order:
    report = await engine.find([SCOPE], SearchRequest((question,), asked_at=NOW))
    return _place(report.facts, f"o{number}"), _place(report.facts, f"n{number}")


def _place(found: Sequence[FoundFact], fact_id: str) -> int:
    ids = [fact.fact_id for fact in found]
    return ids.index(fact_id) if fact_id in ids else len(ids)
