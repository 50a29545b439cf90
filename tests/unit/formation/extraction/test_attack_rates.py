"""What gets past the checks of a model that shares everything: statements made to attack earlier word lists.

docs/what-becomes-memory.md publishes the rates; only this test notices a check that lets through more, or less.
"""

from collections import Counter
from pathlib import Path

from tests.unit.formation.extraction.windows import (
    AGENT,
    AGENT_SCOPE,
    MARA,
    SESSION_SCOPE,
    USER_SCOPE,
    Bench,
    fact,
    stating,
    talk,
    texts,
)

SET = Path(__file__).parents[3] / "sets/before_judgement.tsv"
NAMES = {MARA: "Mara Lindqvist", AGENT: "Juniper"}
TOTAL = {"life": 121, "people": 90, "reflections": 21, "all": 86}
PUBLISHED = {"life": 120, "people": 89, "reflections": 18, "all": 86}


async def shared() -> Counter[str]:
    """How many of each set reach the agent where a model calls all of them the organisation's."""
    found = Counter[str]()
    for line in SET.read_text("utf-8").splitlines():
        name, text = line.split("\t")
        window = talk(text, scopes=(AGENT_SCOPE, USER_SCOPE, SESSION_SCOPE), names=NAMES)
        _, proposed = await Bench(window, stating(fact(text, "agent", 1))).facts()
        found[name] += AGENT_SCOPE.key in texts(proposed)
        found[f"{name} of"] += 1
    return found


async def test_the_rates_are_those_published() -> None:
    found = await shared()
    assert {name: found[f"{name} of"] for name in TOTAL} == TOTAL
    assert {name: found[name] for name in PUBLISHED} == PUBLISHED
