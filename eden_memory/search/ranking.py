"""How lists become an order: the settings of ranking, and its stages by name, around the reranker. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from eden_memory.models.reranking.relevance import LEAST
from eden_memory.models.reranking.scored import Scored
from eden_memory.search.diversity import diverse
from eden_memory.search.fusion import QueryLists, by_rank, by_score
from eden_memory.search.newer import newer_first
from eden_memory.search.recency import DAYS, blended
from eden_memory.search.siblings import lifted
from eden_memory.search.similarity_thresholds import UNRELATED
from eden_memory.search.times import Span, favoured

Kind = Literal["hybrid", "semantic", "text"]
Stage = tuple[str, Callable[[list[Scored]], list[Scored]]]
LISTS: dict[str, int] = {"scores": 50, "ranks": 20}
"""How long lists are before fusion: by ranks their tails only harm, scores say that they are tails."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """What each stage does; the defaults are those that the evaluation bears out (docs/benchmarks.md)."""

    fusion: Literal["scores", "ranks"] = "scores"
    k: float = 60.0
    """By ranks: 1 / (k + rank)."""
    text_weight: float = 0.4
    """By scores: of words, the rest is meaning's."""
    unrelated: float = UNRELATED
    """(1 + cosine) / 2 of unrelated texts, by the embedding model."""
    list_size: int | None = None
    """None: as `LISTS` says."""
    semantic_least: float = 0.0
    """(1 + cosine) / 2; 0: no threshold."""
    text_least: float = 0.0
    """On the store's scale; 0: no threshold."""
    fused_least: float = 0.0
    """On the fused score's scale; 0: no threshold."""
    siblings: float = 0.6
    """How much the best of a fact's conversation lifts it; 0: not at all."""
    times: float = 0.2
    """How much facts of a time that the question names are favoured; 0: not at all."""
    newer: bool = True
    """The newer of two facts about the same stands above the older."""
    rerank_pool: int = 30
    rerank_least: float = LEAST
    recency_weight: float = 0.0
    recency_days: float = DAYS
    diversity: float | None = None
    """Lambda of maximal marginal relevance; None: off."""
    pool: int = 3
    """Diversity picks out of so many times `top_k`."""

    @property
    def most(self) -> int:
        """Candidates of one list."""
        return self.list_size or LISTS[self.fusion]


def fused(lists: Sequence[QueryLists], ranking: Ranking, kind: Kind) -> list[Scored]:
    """All lists as one; of one kind alone, by scores: the order of that list."""
    if ranking.fusion == "ranks":
        return by_rank(lists, ranking.k)
    weight = {"hybrid": ranking.text_weight, "semantic": 0.0, "text": 1.0}[kind]
    return by_score(lists, weight, ranking.unrelated)


def before_reranking(ranking: Ranking, spans: Sequence[Span], kind: Kind) -> list[Stage]:
    """From what is fused to what a reranker reads."""
    stages: list[Stage] = []
    if ranking.fused_least > 0:
        stages.append(("threshold", lambda found: _from(found, ranking.fused_least)))
    if ranking.siblings > 0 and kind == "hybrid" and ranking.fusion == "scores":
        stages.append(("siblings", lambda found: lifted(found, ranking.siblings)))
    if ranking.times > 0 and spans:
        stages.append(("times", lambda found: favoured(found, spans, ranking.times)))
    return stages


def after_reranking(
    ranking: Ranking, asked_at: datetime, top_k: int, least: float | None, *, now: bool
) -> list[Stage]:
    """From relevance to what is returned.

    `least`: the score that the caller wants, before what only orders. `now`: the question is how things are.
    """
    stages: list[Stage] = []
    if ranking.recency_weight > 0:
        stages.append(
            ("recency", lambda found: blended(found, ranking.recency_weight, asked_at, ranking.recency_days))
        )
    if least is not None:
        stages.append(("wanted", lambda found: _from(found, least)))
    if ranking.newer and now:
        stages.append(("newer", lambda found: newer_first(found, ranking.unrelated)))
    trade, pool = ranking.diversity, ranking.pool * top_k
    if trade is not None and trade < 1:
        stages.append(("diversity", lambda found: diverse(found[:pool], top_k, trade)))
    return stages


def related(found: Sequence[Scored], share: float, unrelated: float) -> list[Scored]:
    """Those that are so far from `unrelated` (0) to the same text (1), and those whose similarity is not known."""
    least = unrelated + share * (1 - unrelated)
    return [scored for scored in found if scored.scores.get("semantic", least) >= least]


def _from(found: Sequence[Scored], least: float) -> list[Scored]:
    return [scored for scored in found if scored.score >= least]
