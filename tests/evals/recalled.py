"""What recall adds to a turn: to questions of its memory, and of another's; as recall ranks, without hubs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from eden_memory.search.ranking import Ranking
from eden_memory.search.search_engine import SearchEngine
from eden_memory.search.search_requests import SearchRequest
from tests.evals.conversations import SCOPE, Question
from tests.evals.runs import Loaded

RECALLED = 5


class Recalled(NamedTuple):
    """Of all conversations."""

    answered: float
    """Of the questions that all five best facts answer, the share that is answered by those that recall keeps."""
    others: float
    """Facts added to a question about another's memory, which holds nothing of it."""
    nothing: float
    """Share of these questions to which nothing is added."""


async def recalled(where: Sequence[Loaded]) -> Recalled:
    """Each question is asked of its own conversation, and of the next one."""
    own = [await _hits(one, asked) for one in where for asked in one.of.questions]
    bare = [await _hits(one, asked, related=False) for one in where for asked in one.of.questions]
    strangers = zip(where, (*where[1:], where[0]), strict=True)
    others = [len(await _found(one, asked)) for one, of in strangers for asked in of.of.questions]
    nothing = sum(not number for number in others) / len(others)
    return Recalled(sum(own) / sum(bare), sum(others) / len(others), nothing)


async def _hits(one: Loaded, asked: Question, *, related: bool = True) -> bool:
    return any(one.bears[fact_id] & asked.evidence for fact_id in await _found(one, asked, related=related))


async def _found(one: Loaded, asked: Question, *, related: bool = True) -> list[str]:
    request = SearchRequest((asked.text,), RECALLED, asked_at=one.of.asked_at, related=related)
    found = await SearchEngine(one.facts, one.vectors, replace(Ranking(), hubs=0)).find([SCOPE], request)
    return [fact.fact_id for fact in found.facts]
