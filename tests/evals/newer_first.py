"""The share of update pairs whose newer fact is found above the older one, in the memory of one person each."""

from collections.abc import Sequence
from typing import NamedTuple

from eden_memory.search.ranking import Ranking
from eden_memory.search.search_engine import SearchEngine
from eden_memory.search.search_requests import FoundFact, SearchRequest
from tests.evals.conversations import SCOPE
from tests.evals.held import HeldFacts, KnownVectors
from tests.evals.update_pairs import NOW, PEOPLE, Attribute, Pair, facts_of, pairs


class _Places(NamedTuple):
    older: int
    newer: int


async def share_newer_first(
    attributes: Sequence[Attribute], vectors: KnownVectors, ranking: Ranking
) -> float:
    """A newer fact that is not found is not above."""
    made, above = pairs(attributes), 0
    for person in PEOPLE:
        own = [pair for pair in made if person in pair.older]
        lists = HeldFacts(await vectors.with_vectors(facts_of(own, SCOPE.key)))
        found = [await _places(SearchEngine(lists, vectors, ranking), own, at) for at in range(len(own))]
        above += sum(places.newer < places.older for places in found)
    return above / len(made)


async def _places(engine: SearchEngine, own: Sequence[Pair], number: int) -> _Places:
    report = await engine.find([SCOPE], SearchRequest((own[number].question,), asked_at=NOW))
    return _Places(_place(report.facts, f"o{number}"), _place(report.facts, f"n{number}"))


def _place(found: Sequence[FoundFact], fact_id: str) -> int:
    ids = [one.fact_id for one in found]
    return ids.index(fact_id) if fact_id in ids else len(ids)
