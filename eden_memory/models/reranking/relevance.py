"""A reranker's relevance decides the order, and what is not relevant enough is dropped. Pure."""

from collections.abc import Sequence
from math import exp

from eden_memory.models.reranking.scored import Scored, best_first

LEAST = 0.35


def relevance(score: float) -> float:
    """A cross-encoder's score as a probability: its sigmoid."""
    return 1 / (1 + exp(-score)) if score >= 0 else exp(score) / (1 + exp(score))


def reranked(found: Sequence[Scored], relevances: Sequence[float], least: float = LEAST) -> list[Scored]:
    """By relevance, 0 to 1, in the order of `found`; what is below `least` is dropped."""
    judged = zip(found, relevances, strict=True)
    return best_first(scored.now("rerank", relevant) for scored, relevant in judged if relevant >= least)
