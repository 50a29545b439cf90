"""What recall adds to a turn, by how far from unrelated it must be: to questions of its memory, and of another's."""

from collections.abc import Sequence
from typing import NamedTuple

from eden_memory.search.ranking import Ranking
from eden_memory.search.search_engine import SearchEngine
from eden_memory.search.search_requests import SearchRequest
from tests.evals.conversations import SCOPE, Question
from tests.evals.runs import Loaded

RECALLED = 5


class Recalled(NamedTuple):
    """Of one floor."""

    answered: float
    """Of the questions that are answered without a floor, the share that still is."""
    others: float
    """Facts added to a question about another's memory, which holds nothing of it."""
    nothing: float
    """Share of these questions to which nothing is added."""


async def recalled(where: Sequence[Loaded], related: float) -> Recalled:
    """Each question is asked of its own conversation, and of the next one."""
    own = [await _hits(one, asked, related) for one in where for asked in one.of.questions]
    bare = [await _hits(one, asked, 0.0) for one in where for asked in one.of.questions]
    strangers = zip(where, (*where[1:], where[0]), strict=True)
    others = [len(await _found(one, asked, related)) for one, of in strangers for asked in of.of.questions]
    nothing = sum(not number for number in others) / len(others)
    return Recalled(sum(own) / sum(bare), sum(others) / len(others), nothing)


async def _hits(one: Loaded, asked: Question, related: float) -> bool:
    return any(one.bears[fact_id] & asked.evidence for fact_id in await _found(one, asked, related))


async def _found(one: Loaded, asked: Question, related: float) -> list[str]:
    request = SearchRequest((asked.text,), RECALLED, asked_at=one.of.asked_at, related=related)
    found = await SearchEngine(one.facts, one.vectors, Ranking()).find([SCOPE], request)
    return [fact.fact_id for fact in found.facts]
