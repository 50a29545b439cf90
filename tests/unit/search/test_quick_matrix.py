"""The first pass over small numbers: what it leaves for the exact cosine holds the nearest, through every change."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eden_memory.memory.scope_matrix import ScopeMatrix
from eden_memory.search import quick_matrix
from eden_memory.search.quick_matrix import QuickMatrix

DIMENSIONS = 96


def vectors(count: int, seed: int) -> list[bytes]:
    """In clusters, of any length, as sentences' vectors are."""
    dice = np.random.default_rng(seed)
    centres = dice.standard_normal((20, DIMENSIONS))
    rows = centres[dice.integers(20, size=count)] + 0.4 * dice.standard_normal((count, DIMENSIONS))
    return [row.astype("<f4").tobytes() for row in rows]


def test_it_finds_what_comparing_all_exactly_finds() -> None:
    quick, exact = QuickMatrix(DIMENSIONS), ScopeMatrix(DIMENSIONS)
    for number, vector in enumerate(vectors(quick_matrix.FROM + 500, 1)):
        assert quick.put(f"f{number}", vector)
        exact.put(f"f{number}", vector)
    asked = vectors(30, 2)
    found, wanted = quick.nearest(asked, 10, 0), exact.nearest(asked, 10, 0)
    same = sum(len(set(one) & set(other)) for one, other in zip(found, wanted, strict=True))
    assert same / sum(map(len, wanted)) >= 0.99


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000))
def test_changes_leave_no_trace(seed: int) -> None:
    dice = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quick_matrix, "FROM", 5)
        quick, exact = QuickMatrix(DIMENSIONS), ScopeMatrix(DIMENSIONS)
        for number, vector in enumerate(vectors(60, seed)):
            name = f"f{dice.randrange(25)}"
            for matrix in (quick, exact):
                matrix.put(name, vector)
            if dice.random() < 0.4:
                gone = f"f{dice.randrange(25)}"
                quick.remove(gone)
                exact.remove(gone)
            if number % 7 == 0:
                assert quick.nearest([vector], 4, 0.3) == exact.nearest([vector], 4, 0.3)


def test_a_vector_of_nothing_is_near_to_nothing() -> None:
    quick = QuickMatrix(2)
    for number in range(quick_matrix.FROM):
        quick.put(f"f{number}", np.zeros(2, "<f4").tobytes())
    quick.put("it", np.array([1, 2], "<f4").tobytes())
    ((hit,),) = quick.nearest([np.array([2, 4], "<f4").tobytes()], 3, 0.6)
    assert hit == ("it", pytest.approx(1))


def test_the_vector_is_given_back_and_its_bytes_are_counted() -> None:
    quick = QuickMatrix(2)
    vector = np.array([3, 4], "<f4").tobytes()
    quick.put("it", vector)
    assert quick.vector("it") == vector
    assert quick.vector("other") is None
    before = quick.size
    for number in range(quick_matrix.FROM):
        quick.put(f"f{number}", vector)
    quick.nearest([vector], 1, 0)
    assert quick.size >= before + quick_matrix.FROM * 2 * 5
