"""Texts of two memories that mean the same: one-to-one, the best first, whichever side and order they come in."""

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eden_memory.replay.comparing import matching
from eden_memory.replay.comparing.matching import Floats, Pair, VectorFile, best_first

LEAST = 0.8


def held(rows: Floats) -> VectorFile:
    """The rows as comparing keeps them."""
    found = VectorFile(len(rows), 12)
    for place, row in enumerate(rows):
        found.put(place, row.tobytes())
    return found


def matched(
    left: Floats, right: Floats, keys: tuple[Sequence[str], Sequence[str]], least: float = LEAST, **near: int
) -> list[Pair]:
    with held(left) as ours, held(right) as theirs:
        return best_first(ours, theirs, keys, least, **near)


def rows(count: int, seed: int, kinds: int = 4) -> Floats:
    """Vectors in a few clusters: some pairs are close, most are not."""
    chance = np.random.default_rng(seed)
    centres = chance.normal(size=(kinds, 12))
    made = centres[chance.integers(0, kinds, count)] + chance.normal(scale=0.3, size=(count, 12))
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{place:05}" for place in range(count)]


def by_looking_at_all(left: Floats, right: Floats, keys: tuple[list[str], list[str]]) -> list[Pair]:
    """The plain way: all pairs, sorted, the first that are free."""
    similar = np.round((1 + left @ right.T) / 2, matching.DIGITS)
    found = [Pair(int(a), int(b), round(float(similar[a, b]), 4)) for a, b in np.argwhere(similar >= LEAST)]
    ordered = sorted(
        found,
        key=lambda one: (-one.similarity, *sorted((keys[0][one.left], keys[1][one.right]))),
    )
    pairs: list[Pair] = []
    for one in ordered:
        if all(one.left != other.left and one.right != other.right for other in pairs):
            pairs.append(one)
    return pairs


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 10_000), st.sampled_from((1, 2, 3, 8)))
def test_it_gives_what_looking_at_all_pairs_gives(one: int, other: int, seed: int, near: int) -> None:
    left, right = rows(one, seed), rows(other, seed)[::-1]
    keys = names("l", one), names("r", other)
    found, expected = matched(left, right, keys, near=near), by_looking_at_all(left, right, keys)
    assert named(found, keys) == named(expected, keys)
    assert [pair.similarity for pair in found] == pytest.approx(
        [pair.similarity for pair in expected],
        abs=1e-4,  # products of other shapes are rounded differently
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.randoms(use_true_random=False))
def test_neither_side_nor_order_matters(one: int, other: int, chance: Random) -> None:
    left, right = rows(one, one * 100 + other), rows(other, 7)
    left[: min(one, other, 5)] = right[: min(one, other, 5)]
    keys = names("l", one), names("r", other)
    found = named(matched(left, right, keys), keys)
    turned = matched(right, left, (keys[1], keys[0]))
    assert {(pair[1], pair[0]) for pair in named(turned, (keys[1], keys[0]))} == found
    mixed = chance.sample(range(one), one), chance.sample(range(other), other)
    moved = [keys[0][place] for place in mixed[0]], [keys[1][place] for place in mixed[1]]
    again = matched(left[mixed[0]], right[mixed[1]], moved)
    assert named(again, moved) == found


def named(pairs: list[Pair], keys: tuple[list[str], list[str]]) -> set[tuple[str, str]]:
    return {(keys[0][one.left], keys[1][one.right]) for one in pairs}


def test_many_that_are_all_alike_find_a_partner_each() -> None:
    count = 300
    left, right = rows(count, 1, kinds=1), rows(count, 2, kinds=1)
    right[:] = left[0] + 0.2 * (right - left[0])
    right /= np.linalg.norm(right, axis=1, keepdims=True)
    keys = names("l", count), names("r", count)
    pairs = matched(left, right, keys, 0.5)
    assert len({one.left for one in pairs}) == len({one.right for one in pairs}) == len(pairs) == count
    assert [one.similarity for one in pairs] == sorted((one.similarity for one in pairs), reverse=True)


def test_blocks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = rows(150, 3), rows(130, 4)
    keys = names("l", 150), names("r", 130)
    whole = matched(left, right, keys)
    monkeypatch.setattr(matching, "BLOCK", 7)
    assert matched(left, right, keys) == whole
    assert whole
