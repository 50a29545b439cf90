"""Of two facts that say different things of the same, the newer stands above the older. Pure.

Deduplication replaces what a new fact contradicts; what it leaves side by side (it saw no contradiction, or never saw
the older one) is put in order here. Two facts are of the same where their texts are alike in meaning and are about
the same: the names in them do not tell them apart.
"""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from eden_memory.domain.search.candidates import Candidate
from eden_memory.domain.search.diversity import cosines
from eden_memory.domain.search.scored import Scored

ALIKE = 0.6
"""Cosine, on a scale where unrelated texts have 0, from which two facts are about the same."""
SHARE = 0.5
"""Of the older one's score that the newer one has at least: both answer the question."""
POOL = 50
"""So many of the best are compared."""
_NAME = re.compile(r"\b[A-Z][\w-]*")
_WORD = re.compile(r"\w+")


def newer_first(
    found: Sequence[Scored], unrelated: float = 0.5, alike: float = ALIKE, share: float = SHARE
) -> list[Scored]:
    """Each newer fact directly above the best placed older one of the same, wherever it stood below it."""
    pool = list(found[:POOL])
    if len(pool) < 2:
        return list(found)
    close = _closeness(pool, unrelated)
    order: list[int] = []
    for number, one in enumerate(pool):
        older = (
            place
            for place, above in enumerate(order)
            if close[number, above] >= alike and _replaces(one, pool[above], share)
        )
        order.insert(next(older, len(order)), number)
    return [*_with_falling_scores([pool[number] for number in order]), *found[POOL:]]


def _closeness(pool: Sequence[Scored], unrelated: float) -> NDArray[np.float64]:
    """Cosines, stretched so that unrelated texts of the embedding model have 0."""
    floor = 2 * unrelated - 1
    return (cosines(pool) - floor) / (1 - floor)


def _replaces(newer: Scored, older: Scored, share: float) -> bool:
    return (
        newer.fact.valid_from > older.fact.valid_from
        and newer.fact.scope_key == older.fact.scope_key
        and newer.score >= share * older.score
        and same_subject(newer.fact, older.fact)
    )


def same_subject(one: Candidate, other: Candidate) -> bool:
    """Whether the first name of each stands in the other too; a text without names tells nothing apart."""
    names = _first_name(one.text), _first_name(other.text)
    if names[0] is None or names[1] is None:
        return True
    words = [set(_WORD.findall(text.casefold())) for text in (one.text, other.text)]
    return names[0] in words[1] and names[1] in words[0]


def _first_name(text: str) -> str | None:
    """The first capitalised word; the first word of all only where no other is (any sentence begins so)."""
    names = [match.group().casefold().removesuffix("'s") for match in _NAME.finditer(text)]
    return names[0] if names else None


def _with_falling_scores(found: Sequence[Scored]) -> list[Scored]:
    """A fact that moved up has the score of the place that it moved to."""
    highest = 0.0
    raised: list[Scored] = []
    for one in reversed(found):
        highest = max(highest, one.score)
        raised.append(one if one.score == highest else one.now("newer", highest))
    return raised[::-1]
