"""Plain questions about what a user said long ago, and messages that ask for nothing remembered."""

from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from eden_memory.limits import RECALLED_FACTS
from eden_memory.search.fact_candidates import FactCandidate
from eden_memory.search.ranking import Ranking, unrelated_similarity
from eden_memory.search.search_engine import SearchEngine
from eden_memory.search.search_requests import SearchRequest
from tests.evals.conversations import SCOPE
from tests.evals.held import HeldFacts, KnownVectors
from tests.evals.update_pairs import NOW

PEOPLE = ("Lena", "Marco", "Yusuf", "Chloe", "the new intern")
DONE = ("fixed the {} together with", "had a call about the {} with", "postponed the {} because of")
THINGS = (
    "webhook retries",
    "quarterly report",
    "staging server",
    "login page",
    "newsletter",
    "hiring plan",
    "office move",
    "budget sheet",
    "search index",
    "onboarding guide",
    "press release",
    "customer survey",
    "printer",
    "holiday calendar",
)
"""Of these are what else a user has said: 210 facts about work, in the order of a diary."""


class Recalled(NamedTuple):
    """Shares of messages."""

    answered: float
    """Of the questions: the fact that answers is among what recall adds."""
    disturbed: float
    """Of the messages that ask for nothing remembered: recall adds something."""


def questions() -> list[tuple[str, str]]:
    """(fact, question)."""
    return [(fact, question) for of in _read().values() for fact, question in of["asked"]]


def chat() -> list[str]:
    """Messages that ask memory for nothing."""
    return [message for of in _read().values() for message in of["chat"]]


def diary() -> list[str]:
    """What else the user has said."""
    return [f"User {done.format(thing)} {who}." for thing, done, who in product(THINGS, DONE, PEOPLE)]


async def recalled(vectors: KnownVectors) -> Recalled:
    """Send each message to a memory of all facts, as a context does that shows none of them."""
    asked = questions()
    texts = [*(fact for fact, _ in asked), *diary()]
    facts = [
        FactCandidate(str(number), SCOPE.key, text, NOW, NOW, 1, NOW) for number, text in enumerate(texts)
    ]
    ranking = Ranking(unrelated=unrelated_similarity(vectors.model))
    engine = SearchEngine(HeldFacts(await vectors.with_vectors(facts)), vectors, ranking)
    await vectors.learn([*(question for _, question in asked), *chat()])
    answered = [str(number) in await _added(engine, question) for number, (_, question) in enumerate(asked)]
    disturbed = [bool(await _added(engine, message)) for message in chat()]
    return Recalled(sum(answered) / len(answered), sum(disturbed) / len(disturbed))


async def _added(engine: SearchEngine, message: str) -> Sequence[str]:
    request = SearchRequest((message,), RECALLED_FACTS, asked_at=NOW, related=True)
    return [fact.fact_id for fact in (await engine.find([SCOPE], request)).facts]


@cache
def _read() -> dict[str, Any]:
    return yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
