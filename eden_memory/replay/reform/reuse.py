"""Of which stages a reform asks nothing that was not asked before. Pure.

An answer is used again where model, parameters and prompt are the same. What a stage asks holds what others made:
decisions and reflections the facts extracted, reflections the blobs, blobs the reflections.
"""

from collections.abc import Set

from eden_memory.replay.reform.expected_cost import VECTORS, Reuse

FACTS, DEDUP, REFLECTIONS, CONSOLIDATION = (
    "fact-extraction",
    "fact-dedup",
    "reflection-extraction",
    "consolidation",
)
ALL = frozenset({FACTS, DEDUP, VECTORS, REFLECTIONS, CONSOLIDATION})


def reuse(changed: Set[str], *, one_at_a_time: bool, same_windows: bool) -> Reuse:
    """`changed`: stages that ask another model, otherwise, or another way.

    Only one window at a time meets the same memory as before; several at once may find other candidates, blobs and
    buffers.
    """
    if not same_windows:
        return Reuse()
    if FACTS in changed:  # where no other facts are found, the rest is the same
        return Reuse(some=frozenset(ALL - changed))
    same = set(ALL - changed)
    if changed & {REFLECTIONS, CONSOLIDATION}:
        same -= {REFLECTIONS, CONSOLIDATION}
    if one_at_a_time:
        return Reuse(frozenset(same))
    return Reuse(frozenset(same & {FACTS}), frozenset(same - {FACTS}))
