"""Texts of two memories that mean the same: each in one pair at most, whichever side and order they come in."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.replay.comparing import matching
from eden_memory.replay.comparing.matching import Floats, Pair, nearest_pairs, put_vector, vector_rows

LEAST = 0.8


def rows(count: int, seed: int) -> Floats:
    """Vectors in a few clusters: some pairs are close, most are not."""
    chance = np.random.default_rng(seed)
    centres = chance.normal(size=(4, 12))
    made = centres[chance.integers(0, 4, count)] + chance.normal(scale=0.3, size=(count, 12))
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


def best_first(left: Floats, right: Floats) -> set[tuple[int, int]]:
    """The plain way: all pairs, sorted, the first that are free."""
    similar = np.round((1 + left @ right.T) / 2, matching.DIGITS)
    pairs: dict[int, int] = {}
    for row, column in sorted(np.argwhere(similar >= LEAST).tolist(), key=lambda at: (-similar[*at], *at)):
        if row not in pairs and column not in pairs.values():
            pairs[row] = column
    return set(pairs.items())


def places(pairs: list[Pair]) -> set[tuple[int, int]]:
    return {(pair.left, pair.right) for pair in pairs}


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 10_000), st.sampled_from((3, 7, 2_048)))
def test_rounds_of_mutual_neighbours_give_what_looking_at_all_pairs_gives(
    one: int, other: int, seed: int, block: int
) -> None:
    left, right = rows(one, seed), rows(other, seed)[::-1]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(matching, "ROUNDS", 100)
        patched.setattr(matching, "BLOCK", block)
        found = nearest_pairs(left, right, LEAST)
    assert places(found) == best_first(left, right)
    assert [pair.similarity for pair in found] == sorted((pair.similarity for pair in found), reverse=True)


@given(st.integers(1, 40), st.integers(1, 40), st.randoms(use_true_random=False))
def test_neither_side_nor_order_matters(one: int, other: int, chance: Random) -> None:
    left, right = rows(one, one * 100 + other), rows(other, 7)
    left[: min(one, other, 5)] = right[: min(one, other, 5)]
    found = places(nearest_pairs(left, right, LEAST))
    assert {(pair.right, pair.left) for pair in nearest_pairs(right, left, LEAST)} == found
    ours, theirs = chance.sample(range(one), one), chance.sample(range(other), other)
    mixed = nearest_pairs(left[ours], right[theirs], LEAST)
    assert {(ours[pair.left], theirs[pair.right]) for pair in mixed} == found


def test_a_vector_of_another_model_is_near_to_nothing() -> None:
    left, right = vector_rows(2, 12), vector_rows(1, 12)
    put_vector(left, 0, rows(1, 1)[0][:6])
    put_vector(left, 1, 3 * rows(1, 1)[0])
    put_vector(right, 0, rows(1, 1)[0])
    assert nearest_pairs(left, right, LEAST) == [Pair(1, 0, 1.0)]
