"""The same memory in several languages (languages.yaml): how often a question finds its fact."""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from eden_memory.search.fact_candidates import FactCandidate
from eden_memory.search.ranking import Ranking
from eden_memory.search.search_engine import SearchEngine
from eden_memory.search.search_requests import Kind, SearchRequest
from tests.evals.conversations import SCOPE
from tests.evals.held import HeldFacts, KnownVectors
from tests.evals.update_pairs import NOW

UNSPACED = ("Chinese", "Japanese", "Korean")


class Found(NamedTuple):
    """Shares of the questions whose fact is the first, or among the first ten."""

    first: float
    among_ten: float


class Asked(NamedTuple):
    """A fact and its question."""

    text: str
    question: str


def languages() -> list[str]:
    """Their names."""
    return list(_read())


def facts_in(language: str) -> list[Asked]:
    """Every person's facts."""
    return list(_facts(_read()[language]))


async def found_in(language: str, vectors: KnownVectors, ranking: Ranking, kind: Kind = "hybrid") -> Found:
    """Ask for every fact among all of its language."""
    asked = facts_in(language)
    await vectors.learn(
        [text for one in asked for text in (one.text, one.question)]
    )  # the model is loaded once
    facts = [
        FactCandidate(str(number), SCOPE.key, fact.text, NOW, NOW, 1, NOW)
        for number, fact in enumerate(asked)
    ]
    engine = SearchEngine(HeldFacts(await vectors.with_vectors(facts)), vectors, ranking)
    places = [await _place(engine, fact.question, str(number), kind) for number, fact in enumerate(asked)]
    return Found(_share(places, 1), _share(places, 10))


async def _place(engine: SearchEngine, question: str, fact_id: str, kind: Kind) -> int:
    report = await engine.find([SCOPE], SearchRequest((question,), search_type=kind, asked_at=NOW))
    ids = [fact.fact_id for fact in report.facts]
    return ids.index(fact_id) if fact_id in ids else len(ids) + 10


def _share(places: Sequence[int], most: int) -> float:
    return sum(place < most for place in places) / len(places)


def _facts(memory: dict[str, Any]) -> Iterator[Asked]:
    for statement, question, values in memory["facts"]:
        for person, value in zip(memory["people"], values, strict=True):
            yield Asked(
                statement.replace("P", person).replace("V", str(value)), question.replace("P", person)
            )


@cache
def _read() -> dict[str, Any]:
    return yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
