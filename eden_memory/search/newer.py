"""Of two facts that say different things about the same, the newer stands above the older. Pure.

Deduplication replaces what a new fact contradicts. What it leaves side by side (it saw no contradiction, or never saw
the older one) is put in order here by meaning, shared words and time, in any language. An update repeats words of the
older text, and the question is about what the two have in common; texts about the same person or event answer
different questions. A newer fact overtakes an older one if the question is far enough in the direction of the present
(eden_memory.search.question_tense): the more speaks for an update, the less of it is needed.
"""

from collections.abc import Mapping, Sequence, Set

import numpy as np
from numpy.typing import NDArray

from eden_memory.search.diversity import cosines
from eden_memory.search.fact_candidates import Scored
from eden_memory.search.text_index import stems_of

ALIKE = 0.3
"""From which two facts may be about the same, from unrelated (0) to the same text (1)."""
NEEDED = 0.15
"""Of the question's tense, if nothing speaks for an update or against one."""
SHARED_WORDS = 2.0
"""Less is needed by so much times the share of their words that both facts have."""
IN_COMMON = 3.0
"""And by so much times how much nearer the newer fact is to the question than to the older fact."""
WORDS_LOST = 1.0
"""More is needed by so much times the share of the question's words that only the older fact has."""
EACH_NEARER = 0.3
"""And by so much for each fact that is nearer to one of the two than the other is."""
PAST = -0.6
"""Whatever speaks for an update: a question so far about the past is not reordered."""
POOL = 10
"""So many of the best are put in order: what is found stays the same, where 10 are asked for."""

Overtaking = tuple[str, str]
"""Ids of a newer fact, and of an older one about the same."""


def tense_needed(
    found: Sequence[Scored], asked: Set[str], unrelated: float = 0.5
) -> Mapping[Overtaking, float]:
    """Return how far a question must be about the present, -1 to 1, for a newer fact to overtake an older one.

    `asked`: stems of the question's words. `unrelated`: (1 + cosine) / 2 of texts that have nothing to do with each
    other.
    """
    pool = found[:POOL]
    if len(pool) < 2:
        return {}
    alike = _alike(pool, unrelated)
    updates = np.argwhere(_newer(pool) & (alike >= ALIKE))
    places = (-alike).argsort(1, kind="stable").argsort(1)
    words = {number: stems_of(pool[number].fact.text) for number in set(updates.ravel().tolist())}
    needed: dict[Overtaking, float] = {}
    for newer, older in updates.tolist():
        fits = _fits(pool[newer], unrelated)
        if fits is not None:
            needed[pool[newer].fact.fact_id, pool[older].fact.fact_id] = (
                NEEDED
                - SHARED_WORDS * _share(words[newer] & words[older], words[newer] | words[older])
                - IN_COMMON * (fits - float(alike[newer, older]))
                + WORDS_LOST * _share((asked & words[older]) - words[newer], asked)
                + EACH_NEARER * max(places[newer, older], places[older, newer])
            )
    return {pair: max(tense, PAST) for pair, tense in needed.items() if tense < 1}


def newer_first(found: Sequence[Scored], overtaking: Set[Overtaking]) -> list[Scored]:
    """Each newer fact directly above the best placed older one that it overtakes, if it stood below it."""
    pool = found[:POOL]
    order: list[Scored] = []
    for scored in pool:
        name = scored.fact.fact_id
        above = (at for at, better in enumerate(order) if (name, better.fact.fact_id) in overtaking)
        order.insert(next(above, len(order)), scored)
    return [*_with_falling_scores(order), *found[POOL:]]


def _alike(pool: Sequence[Scored], unrelated: float) -> NDArray[np.float64]:
    """How alike the facts are, each with each; 0 with itself."""
    floor = 2 * unrelated - 1
    alike = (cosines(pool) - floor) / (1 - floor)
    np.fill_diagonal(alike, 0)
    return alike


def _newer(pool: Sequence[Scored]) -> NDArray[np.bool_]:
    """Whether the line's fact is newer than the column's, of the same scope."""
    stated = np.array([scored.fact.valid_from.timestamp() for scored in pool])
    scopes = np.array([scored.fact.scope_key for scored in pool])
    return (stated[:, None] > stated[None, :]) & (scopes[:, None] == scopes[None, :])


def _fits(scored: Scored, unrelated: float) -> float | None:
    """How alike a fact and the question are, on the same scale; None if that is not known."""
    similar = scored.scores.get("semantic")
    return None if similar is None else (similar - unrelated) / (1 - unrelated)


def _share(part: Set[str], whole: Set[str]) -> float:
    return len(part) / len(whole) if whole else 0.0


def _with_falling_scores(found: Sequence[Scored]) -> list[Scored]:
    """A fact that moved up has the score of the place that it moved to."""
    highest = 0.0
    raised: list[Scored] = []
    for scored in reversed(found):
        highest = max(highest, scored.score)
        raised.append(scored if scored.score == highest else scored.now("newer", highest))
    return raised[::-1]
