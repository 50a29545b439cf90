"""R@10 and nDCG@10 of an order of units; recall counts turns of the evidence, whichever units bear them."""

from collections.abc import Mapping, Sequence
from math import log2
from typing import NamedTuple

K = 10


class Quality(NamedTuple):
    """Of one question, or a mean."""

    recall: float
    ndcg: float


def quality(order: Sequence[str], bears: Mapping[str, frozenset[str]], evidence: frozenset[str]) -> Quality:
    """`order`: ids of units, best first; a unit is relevant if it bears any turn of the evidence."""
    top = order[:K]
    found = frozenset(turn for one in top for turn in bears[one]) & evidence
    relevant = sum(bool(turns & evidence) for turns in bears.values())
    gain = sum(1 / log2(place + 2) for place, one in enumerate(top) if bears[one] & evidence)
    ideal = sum(1 / log2(place + 2) for place in range(min(K, relevant)))
    return Quality(len(found) / len(evidence), gain / ideal)


def mean(of: Sequence[Quality]) -> Quality:
    """Every question counts the same."""
    return Quality(sum(one.recall for one in of) / len(of), sum(one.ndcg for one in of) / len(of))
