"""Several lists of candidates become one: by ranks (RRF) or by scores (a weighted sum). Pure.

By ranks: Σ weight / (k + rank), Cormack, Clarke and Büttcher, SIGIR 2009. By scores: a convex combination of
normalised scores, Bruch, Gai and Ingber, "An Analysis of Fusion Functions for Hybrid Retrieval", TOIS 2023; the text
score is divided by its list's best, similarity is measured between that of unrelated texts and its list's best.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eden_memory.search.fact_candidates import FactCandidate, Ranked, Scored, best_first


@dataclass(frozen=True, slots=True)
class QueryLists:
    """The lists that one query found; a list is None if it was not requested, or failed."""

    semantic: Sequence[Ranked] | None
    textual: Sequence[Ranked] | None
    vector: bytes | None = None
    """The query's, packed float32: facts that only words found are compared with it."""


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


def by_score(found: Sequence[QueryLists], text_weight: float, unrelated: float) -> list[Scored]:
    """The best of each fact's queries, 0 to 1: `text_weight` x words + (1 - `text_weight`) x meaning.

    `unrelated`: the similarity, (1 + cosine) / 2, of texts that have nothing to do with each other.
    """
    best: dict[str, Scored] = {}
    for lists in found:
        for scored in _of_query(lists, text_weight, unrelated):
            known = best.get(scored.fact.fact_id)
            if known is None or scored.score > known.score:
                best[scored.fact.fact_id] = scored
    return best_first(best.values())


def _of_query(lists: QueryLists, text_weight: float, unrelated: float) -> list[Scored]:
    facts = {
        entry.fact.fact_id: entry.fact for ranked in (lists.textual, lists.semantic) for entry in ranked or ()
    }
    similar, words = (
        _similarities(lists, facts),
        {entry.fact.fact_id: entry.score for entry in lists.textual or ()},
    )
    meaning, said = _between(similar, unrelated), _of_best(words)
    weight = 1.0 if lists.semantic is None else 0.0 if lists.textual is None else text_weight
    scored: list[Scored] = []
    for fact_id, fact in facts.items():
        score = weight * said.get(fact_id, 0.0) + (1 - weight) * meaning.get(fact_id, 0.0)
        scores = {"fused": score}
        if fact_id in similar:
            scores["semantic"] = similar[fact_id]
        if fact_id in words:
            scores["text"] = words[fact_id]
        scored.append(Scored(fact, score, scores))
    return scored


def _similarities(lists: QueryLists, facts: Mapping[str, FactCandidate]) -> dict[str, float]:
    """(1 + cosine) / 2 of every candidate whose vector is known, also of those that only words found."""
    if lists.semantic is None:
        return {}
    similar = {ranked.fact.fact_id: ranked.score for ranked in lists.semantic}
    asked = lists.vector
    if asked is None:
        return similar
    others = [fact for fact in facts.values() if fact.fact_id not in similar and _fits(fact.vector, asked)]
    if others:
        similar.update(zip((other.fact_id for other in others), similarity_to(asked, others), strict=True))
    return similar


def _fits(vector: bytes | None, asked: bytes) -> bool:
    return vector is not None and len(vector) == len(asked)


def similarity_to(asked: bytes, facts: Sequence[FactCandidate]) -> list[float]:
    """(1 + cosine) / 2 of a vector with each fact's; all have one of the same length."""
    rows = np.frombuffer(b"".join(fact.vector or b"" for fact in facts), "<f4").reshape(len(facts), -1)
    query = np.frombuffer(asked, "<f4")
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(query)
    cosine = np.divide(rows @ query, lengths, out=np.zeros(len(facts), np.float32), where=lengths > 0)
    return ((1 + np.clip(cosine, -1, 1)) / 2).astype(float).tolist()


def _between(similar: Mapping[str, float], unrelated: float) -> dict[str, float]:
    """0 for an unrelated text, 1 for the nearest found."""
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
