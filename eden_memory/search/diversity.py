"""Maximal marginal relevance: what says the same as something better is put back. Pure.

Carbonell and Goldstein, SIGIR 1998.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from eden_memory.search.fact_candidates import Scored

LAMBDA = 0.7


def diverse(found: Sequence[Scored], most: int, trade: float = LAMBDA) -> list[Scored]:
    """At most `most`, picked one by one by `trade` x score - (1 - `trade`) x likeness to the nearest picked.

    Likeness is the cosine, 0 below 0 and for facts whose vectors cannot be compared; `trade` 1 changes nothing.
    """
    if trade >= 1 or len(found) <= 1:
        return list(found[:most])
    alike, scores = cosines(found), np.array([scored.score for scored in found])
    nearest, open_ = np.zeros(len(found)), np.ones(len(found), bool)
    picked: list[Scored] = []
    while len(picked) < min(most, len(found)):
        worth = np.where(open_, trade * scores - (1 - trade) * nearest, -np.inf)
        number = int(worth.argmax())
        picked.append(found[number].now("diversity", found[number].score, float(worth[number])))
        open_[number] = False
        nearest = np.maximum(nearest, alike[number])
    return picked


def cosines(found: Sequence[Scored]) -> NDArray[np.float64]:
    """Of each with each, from 0 up; 0 where a vector is missing or of another length than the first."""
    size = next((len(scored.fact.vector) for scored in found if scored.fact.vector), 0)
    rows = np.zeros((len(found), size // 4))
    for number, scored in enumerate(found):
        if scored.fact.vector is not None and len(scored.fact.vector) == size:
            rows[number] = np.frombuffer(scored.fact.vector, "<f4")
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return np.clip(unit @ unit.T, 0, 1)
