"""R@10 and nDCG@10 of an order of units; recall counts turns of the evidence, whichever units bear them."""

from collections.abc import Mapping, Sequence
from math import log2

from eden_memory.evals.systems import K, Quality


def quality(order: Sequence[str], bears: Mapping[str, frozenset[str]], evidence: frozenset[str]) -> Quality:
    """`order`: ids of units, best first; a unit is relevant if it bears any turn of the evidence."""
    top = order[:K]
    found = frozenset(turn for one in top for turn in bears[one]) & evidence
    relevant = sum(bool(turns & evidence) for turns in bears.values())
    gain = sum(1 / log2(place + 2) for place, one in enumerate(top) if bears[one] & evidence)
    ideal = sum(1 / log2(place + 2) for place in range(min(K, relevant)))
    return Quality(len(found) / len(evidence), gain / ideal)
