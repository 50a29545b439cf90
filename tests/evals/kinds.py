"""Two ways to find preferences and advice by search: in reflections beside the facts, or kept as facts.

A conversation's single facts are divided: those that say what somebody likes, feels, means to do or was advised stand
for reflections, which extraction leaves out of the facts.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from eden_memory.evals.systems import Quality
from eden_memory.evals.systems import mean_quality as mean
from eden_memory.search.fact_candidates import FactCandidate
from eden_memory.search.ranking import Ranking
from eden_memory.search.search_engine import SearchEngine
from eden_memory.search.search_requests import FACTS, SearchedKind, SearchRequest
from tests.evals.conversations import SCOPE, Conversation, Question, Unit, conversations
from tests.evals.held import HeldFacts, KnownVectors
from tests.evals.measures import quality

BOTH: tuple[SearchedKind, ...] = ("facts", "reflections")
INSIGHT = re.compile(
    r"\b(like|love|enjoy|prefer|favou?rite|feel|felt|want|hope|plan|believe|think|value|appreciate|advise|suggest"
    r"|recommend|encourage|passion|interest|find|inspire|motivate|goal|dream)(s|d|ed|es|ing|ion|ations?)?\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class KindsMeasured:
    """Mean quality over the questions that facts answer, that reflections answer, and that need both."""

    by_facts: Quality
    by_reflections: Quality
    by_both: Quality


async def kinds_measured(vectors: KnownVectors) -> dict[str, KindsMeasured]:
    """By the way of finding: facts alone (as it was), reflections beside them, everything kept as a fact."""
    talks = conversations("facts")
    await vectors.learn([unit.fact.text for talk in talks for unit in talk.units])
    await vectors.learn([asked.text for talk in talks for asked in talk.questions])
    ways: dict[str, tuple[tuple[SearchedKind, ...], bool]] = {
        "facts alone": (FACTS, False),
        "reflections beside facts": (BOTH, False),
        "all kept as facts": (FACTS, True),
    }
    return {name: await _measured(talks, vectors, *way) for name, way in ways.items()}


async def _measured(
    talks: Sequence[Conversation], vectors: KnownVectors, kinds: tuple[SearchedKind, ...], as_facts: bool
) -> KindsMeasured:
    found: dict[frozenset[bool], list[Quality]] = {}
    for talk in talks:
        engine, bears = await _engine(talk, vectors, as_facts), _bears(talk)
        for asked in talk.questions:
            report = await engine.find(
                [SCOPE], SearchRequest((asked.text,), asked_at=talk.asked_at, kinds=kinds)
            )
            order = [fact.fact_id for fact in report.facts]
            found.setdefault(_answering(talk, asked), []).append(quality(order, bears, asked.evidence))
    return KindsMeasured(*(mean(found[frozenset(of)]) for of in ((False,), (True,), (False, True))))


async def _engine(talk: Conversation, vectors: KnownVectors, as_facts: bool) -> SearchEngine:
    facts = [unit.fact for unit in talk.units if as_facts or not _is_insight(unit)]
    insights = [replace(unit.fact, kind="reflection") for unit in talk.units if _is_insight(unit)]
    return SearchEngine(
        await _lists(facts, vectors), vectors, Ranking(), reflections=await _lists(insights, vectors)
    )


async def _lists(candidates: Sequence[FactCandidate], vectors: KnownVectors) -> HeldFacts:
    return HeldFacts(await vectors.with_vectors(candidates))


def _bears(talk: Conversation) -> dict[str, frozenset[str]]:
    return {unit.fact.fact_id: unit.bears for unit in talk.units}


def _answering(talk: Conversation, asked: Question) -> frozenset[bool]:
    """Return whether the units that answer stand for reflections: one of the two, or both."""
    return frozenset(_is_insight(unit) for unit in talk.units if unit.bears & asked.evidence)


def _is_insight(unit: Unit) -> bool:
    return INSIGHT.search(unit.fact.text) is not None
