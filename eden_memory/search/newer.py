"""Of two facts that say different things about the same, the newer stands above the older. Pure.

Deduplication replaces what a new fact contradicts. What it leaves side by side (it saw no contradiction, or never saw
the older one) is put in order here, by meaning and time alone, in any language. A newer fact overtakes an older one
if the two are about the same, if the question does not tell between them, and if it is about the present:

- about the same: alike (cosine, stretched so that unrelated texts have 0), and among each other's nearest;
- not told apart: the older one is the best there is, or the newer answers nearly as well;
- the present: how near the question is to questions about the present, rather than the past
  (eden_memory.search.question_tense): the more, the less must the others hold.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from eden_memory.search.diversity import cosines
from eden_memory.search.fact_candidates import Scored

ALIKE = 0.35
"""From which two facts may be about the same."""
EACH_NEARER = 0.25
"""Needed of the question's tense for each fact that is nearer to both of the two than they are to each other."""
TOLD_APART = 14.0
"""Needed of it for how far the older is below the best possible, times how far the newer is below the older."""
PRESENT = 0.05
"""Added to the tense: a question that is neither about the present nor the past is taken for the present."""
LEAST = 1e-9
"""A score that tells nothing apart."""
POOL = 10
"""So many of the best are put in order: what is found stays the same, where 10 are asked for."""


def newer_first(
    found: Sequence[Scored], tense: float, unrelated: float = 0.5, best: float = 1.0
) -> list[Scored]:
    """Each newer fact directly above the best placed older one about the same, wherever it stood below it.

    `tense`: of the question, from -1 (the past) to 1 (the present). `unrelated`: (1 + cosine) / 2 of texts that have
    nothing to do with each other. `best`: the highest score that there can be.
    """
    pool = found[:POOL]
    if len(pool) < 2:
        return list(found)
    overtakes = _overtaking(pool, tense, unrelated, best)
    order: list[int] = []
    for number in range(len(pool)):
        place = next((at for at, above in enumerate(order) if overtakes[number, above]), len(order))
        order.insert(place, number)
    return [*_with_falling_scores([pool[number] for number in order]), *found[POOL:]]


def may_differ(found: Sequence[Scored], unrelated: float = 0.5) -> bool:
    """Whether any two say things about the same at different times: only then is a question's tense needed."""
    return bool(_updates(found, unrelated)[0].any())


def _overtaking(pool: Sequence[Scored], tense: float, unrelated: float, best: float) -> NDArray[np.bool_]:
    """Whether the line's fact is to stand above the column's."""
    updates, alike = _updates(pool, unrelated)
    places = (-alike).argsort(1, kind="stable").argsort(1)
    needed = EACH_NEARER * np.minimum(places, places.T) + TOLD_APART * _told_apart(pool, best)
    return updates & (tense + PRESENT > needed)


def _updates(found: Sequence[Scored], unrelated: float) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Whether the line's fact is a newer one about the same as the column's, and how alike they are."""
    floor = 2 * unrelated - 1
    alike = (cosines(found) - floor) / (1 - floor)
    np.fill_diagonal(alike, 0)
    stated = np.array([scored.fact.valid_from.timestamp() for scored in found])
    scopes = np.array([scored.fact.scope_key for scored in found])
    newer = (stated[:, None] > stated[None, :]) & (scopes[:, None] == scopes[None, :])
    return newer & (alike >= ALIKE), alike


def _told_apart(pool: Sequence[Scored], best: float) -> NDArray[np.float64]:
    """How much more the question is about the column's fact than about the line's, 0 to 1."""
    scores = np.array([scored.score for scored in pool])
    share = np.divide(scores[:, None], scores[None, :], out=np.ones((len(pool),) * 2), where=scores > LEAST)
    return np.clip(1 - scores / best, 0, 1)[None, :] * np.clip(1 - share, 0, 1)


def _with_falling_scores(found: Sequence[Scored]) -> list[Scored]:
    """A fact that moved up has the score of the place that it moved to."""
    highest = 0.0
    raised: list[Scored] = []
    for scored in reversed(found):
        highest = max(highest, scored.score)
        raised.append(scored if scored.score == highest else scored.now("newer", highest))
    return raised[::-1]
