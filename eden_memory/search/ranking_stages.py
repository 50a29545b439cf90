"""The stages of ranking: fuse lists, put the newer above the older, and keep what differs. Pure.

By ranks: Σ weight / (k + rank), Cormack, Clarke and Büttcher, SIGIR 2009. By scores: a convex combination of
normalised scores, Bruch, Gai and Ingber, "An Analysis of Fusion Functions for Hybrid Retrieval", TOIS 2023; the text
score is divided by its list's best, similarity is measured between that of unrelated texts and its list's best.

Carbonell and Goldstein, SIGIR 1998.

Deduplication replaces what a new fact contradicts. What it leaves side by side (it saw no contradiction, or never saw
the older one) is put in order here by meaning, shared words and time, in any language. An update repeats words of the
older text, and the question is about what the two have in common; texts about the same person or event answer
different questions. A newer fact overtakes an older one if the question is far enough in the direction of the present
(eden_memory.search.question_times): the more speaks for an update, the less of it is needed.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eden_memory.search.fact_candidates import FactCandidate, Ranked, Scored, best_first
from eden_memory.search.text_index import stems_of

HUB_NEAREST = 20
"""How many candidates nearest to one say how near it is to everything."""


@dataclass(frozen=True, slots=True)
class QueryLists:
    """The lists that one query found; a list is None if it was not requested, or failed."""

    semantic: Sequence[Ranked] | None
    textual: Sequence[Ranked] | None
    vector: bytes | None = None
    """The query's vector, packed float32; facts that only words found are compared with it."""


def by_rank(found: Sequence[QueryLists], k: float, text_weight: float = 0.5) -> list[Scored]:
    """Σ of 1 / (k + rank) over all lists, ranks from 1; `text_weight` 0.5: every list counts the same.

    Scores are those of equal weights' scale: at 0.5 each list gives at most 1 / (k + 1).
    """
    facts: dict[str, Scored] = {}
    for lists in found:
        for name, ranked, weight in (
            ("semantic", lists.semantic, 2 * (1 - text_weight)),
            ("text", lists.textual, 2 * text_weight),
        ):
            for rank, entry in enumerate(ranked or (), 1):
                known = facts.get(entry.fact.fact_id) or Scored(entry.fact, 0.0)
                facts[entry.fact.fact_id] = _seen(known, name, entry.score, known.score + weight / (k + rank))
    return best_first(fact.now("fused", fact.score) for fact in facts.values())


def by_score(
    found: Sequence[QueryLists], text_weight: float, unrelated: float, hubs: float = 0.0
) -> list[Scored]:
    """The best of each fact's queries, 0 to 1: `text_weight` x words + (1 - `text_weight`) x meaning.

    `unrelated`: the similarity, (1 + cosine) / 2, of texts that have nothing to do with each other. `hubs`: how much
    facts that are near to many other candidates are lowered.
    """
    best: dict[str, Scored] = {}
    for lists in found:
        for scored in _of_query(lists, text_weight, unrelated, hubs):
            known = best.get(scored.fact.fact_id)
            if known is None or scored.score > known.score:
                best[scored.fact.fact_id] = scored
    return best_first(best.values())


def _of_query(lists: QueryLists, text_weight: float, unrelated: float, hubs: float) -> list[Scored]:
    facts = {
        entry.fact.fact_id: entry.fact for ranked in (lists.textual, lists.semantic) for entry in ranked or ()
    }
    similar, words = (
        _similarities(lists, facts),
        {entry.fact.fact_id: entry.score for entry in lists.textual or ()},
    )
    said = _of_best(words)
    weight = 1.0 if lists.semantic is None else 0.0 if lists.textual is None else text_weight

    def fused(similarities: Mapping[str, float]) -> dict[str, float]:
        meaning = _between(similarities, unrelated)
        return {name: weight * said.get(name, 0.0) + (1 - weight) * meaning.get(name, 0.0) for name in facts}

    fused_scores, lowered = fused(similar), _without_hubs(similar, facts, hubs)
    if lowered is not similar:
        fused_scores = _with_the_best_first(fused(lowered), fused_scores)
    scored: list[Scored] = []
    for fact_id, fact in facts.items():
        score = fused_scores[fact_id]
        scores = {"fused": score}
        if fact_id in similar:
            scores["semantic"] = similar[fact_id]
        if fact_id in words:
            scores["text"] = words[fact_id]
        scored.append(Scored(fact, score, scores))
    return scored


def _with_the_best_first(lowered: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    """Return the lowered scores, with the best fact of before ahead by no less than it was, scores up to 1.

    What is behind it keeps its order: where there is no room above, all of it is scaled down.
    """
    first, *others = sorted(before, key=lambda name: -before[name])
    ahead = before[first] - before[others[0]]
    next_best = max(lowered[name] for name in others)
    best = max(lowered[first], min(1.0, next_best + ahead))
    room = (best - ahead) / next_best if best - ahead < next_best else 1.0
    return {name: best if name == first else room * score for name, score in lowered.items()}


def _similarities(lists: QueryLists, facts: Mapping[str, FactCandidate]) -> dict[str, float]:
    """Return (1 + cosine) / 2 of every candidate with a known vector, including those that only words found."""
    if lists.semantic is None:
        return {}
    similar = {ranked.fact.fact_id: ranked.score for ranked in lists.semantic}
    asked = lists.vector
    if asked is None:
        return similar
    others = [
        fact for fact in facts.values() if fact.fact_id not in similar and _comparable(fact.vector, asked)
    ]
    if others:
        similar.update(zip((other.fact_id for other in others), similarity_to(asked, others), strict=True))
    return similar


def _comparable(vector: bytes | None, asked: bytes) -> bool:
    return vector is not None and len(vector) == len(asked)


def similarity_to(asked: bytes, facts: Sequence[FactCandidate]) -> list[float]:
    """Return (1 + cosine) / 2 of a vector with each fact's; all have the same length."""
    rows = np.frombuffer(b"".join(fact.vector or b"" for fact in facts), "<f4").reshape(len(facts), -1)
    query = np.frombuffer(asked, "<f4")
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(query)
    cosine = np.divide(rows @ query, lengths, out=np.zeros(len(facts), np.float32), where=lengths > 0)
    return ((1 + np.clip(cosine, -1, 1)) / 2).astype(float).tolist()


def _without_hubs(
    similar: Mapping[str, float], facts: Mapping[str, FactCandidate], weight: float
) -> Mapping[str, float]:
    """Lower each similarity by how much nearer than others a fact is to the 20 candidates nearest to it.

    Some texts are near to whatever is asked, because they are near to everything: local scaling as in Conneau et al.,
    "Word Translation Without Parallel Data", ICLR 2018. The similarities that are reported stay as they were.
    """
    size = next((len(fact.vector) for fact in facts.values() if fact.vector), 0)
    having = [name for name in similar if len(facts[name].vector or b"") == size]
    if weight <= 0 or size == 0 or len(having) < 3:
        return similar
    rows = np.frombuffer(b"".join(facts[name].vector or b"" for name in having), "<f4").reshape(
        len(having), -1
    )
    unit = _unit(rows)
    alike = unit @ unit.T
    np.fill_diagonal(alike, -np.inf)
    most = min(HUB_NEAREST, len(having) - 1)
    nearest = np.partition(alike, -most, axis=1)[:, -most:].mean(axis=1)
    lowered = (weight * (nearest - nearest.mean()) / 2).astype(float).tolist()
    return {**similar, **{name: similar[name] - less for name, less in zip(having, lowered, strict=True)}}


def _between(similar: Mapping[str, float], unrelated: float) -> dict[str, float]:
    """Scale a similarity to 0 for an unrelated text and 1 for the nearest one found."""
    if not similar:
        return {}
    top = max(similar.values())
    low = min(unrelated, *similar.values()) if top <= unrelated else unrelated
    width = (top - low) or 1.0
    return {fact_id: max(0.0, (score - low) / width) for fact_id, score in similar.items()}


def _of_best(words: Mapping[str, float]) -> dict[str, float]:
    top = max(words.values(), default=0.0)
    return {fact_id: score / top for fact_id, score in words.items()} if top > 0 else {}


def _seen(known: Scored, name: str, score: float, total: float) -> Scored:
    best = max(score, known.scores.get(name, score))
    return Scored(known.fact, total, {**known.scores, name: best})


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
    """Return the similarity of each with each, from 0 up; 0 if a vector is missing or of another length."""
    size = next((len(scored.fact.vector) for scored in found if scored.fact.vector), 0)
    rows = np.zeros((len(found), size // 4))
    for number, scored in enumerate(found):
        if scored.fact.vector is not None and len(scored.fact.vector) == size:
            rows[number] = np.frombuffer(scored.fact.vector, "<f4")
    unit = _unit(rows)
    return np.clip(unit @ unit.T, 0, 1)


def _unit(rows: NDArray[Any]) -> NDArray[Any]:
    """Return rows of length 1; of zeros, zeros."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)


ALIKE = 0.3
"""Least similarity of two facts that may be about the same thing, from unrelated (0) to the same text (1)."""

NEEDED = 0.15
"""How far the question must be about the present if nothing speaks for an update or against one."""

SHARED_WORDS = 2.0
"""Lowers the need, times the share of words that both facts have."""

IN_COMMON = 3.0
"""Lowers the need, times how much nearer the newer fact is to the question than to the older fact."""

WORDS_LOST = 1.0
"""Raises the need, times the share of the question's words that only the older fact has."""

EACH_NEARER = 0.3
"""Raises the need for each other fact that is nearer to one of the two than they are to each other."""

PAST = -0.6
"""A question at least this far about the past is not reordered, whatever speaks for an update."""

POOL = 10
"""How many of the best facts are reordered, so that the best 10 remain the same facts."""


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
        fits = _likeness_to_question(pool[newer], unrelated)
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
    """Put each newer fact directly above the best older one that it overtakes, if it was below it."""
    pool = found[:POOL]
    order: list[Scored] = []
    for scored in pool:
        name = scored.fact.fact_id
        above = (at for at, better in enumerate(order) if (name, better.fact.fact_id) in overtaking)
        order.insert(next(above, len(order)), scored)
    return [*_with_falling_scores(order), *found[POOL:]]


def _alike(pool: Sequence[Scored], unrelated: float) -> NDArray[np.float64]:
    """Return the similarity of the facts, each with each; 0 with itself."""
    floor = 2 * unrelated - 1
    alike = (cosines(pool) - floor) / (1 - floor)
    np.fill_diagonal(alike, 0)
    return alike


def _newer(pool: Sequence[Scored]) -> NDArray[np.bool_]:
    """Whether the row's fact is newer than the column's, of the same scope."""
    stated = np.array([scored.fact.valid_from.timestamp() for scored in pool])
    scopes = np.array([scored.fact.scope_key for scored in pool])
    return (stated[:, None] > stated[None, :]) & (scopes[:, None] == scopes[None, :])


def _likeness_to_question(scored: Scored, unrelated: float) -> float | None:
    """Return how similar a fact and the question are, on the same scale; None if that is unknown."""
    similar = scored.scores.get("semantic")
    return None if similar is None else (similar - unrelated) / (1 - unrelated)


def _share(part: Set[str], whole: Set[str]) -> float:
    return len(part) / len(whole) if whole else 0.0


def _with_falling_scores(found: Sequence[Scored]) -> list[Scored]:
    """Give a fact that moved up the score of the place to which it moved."""
    highest = 0.0
    raised: list[Scored] = []
    for scored in reversed(found):
        highest = max(highest, scored.score)
        raised.append(scored if scored.score == highest else scored.now("newer", highest))
    return raised[::-1]
