"""The first pass over small numbers: what it leaves for the exact cosine holds the nearest, through every change."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.memory.scope_matrix import ScopeMatrix
from eden_memory.search import stored_vector_store
from eden_memory.search.stored_vector_store import QuickMatrix

DIMENSIONS = 96


def vectors(count: int, seed: int) -> list[bytes]:
    """In clusters, of any length, as sentences' vectors are."""
    dice = np.random.default_rng(seed)
    centres = dice.standard_normal((20, DIMENSIONS))
    rows = centres[dice.integers(20, size=count)] + 0.4 * dice.standard_normal((count, DIMENSIONS))
    return [row.astype("<f4").tobytes() for row in rows]


def put(quick: QuickMatrix, name: str, vector: bytes) -> None:
    quick.put({name: vector})


def test_it_finds_what_comparing_all_exactly_finds() -> None:
    quick, exact = QuickMatrix(DIMENSIONS), ScopeMatrix(DIMENSIONS)
    facts = {f"f{number}": vector for number, vector in enumerate(vectors(3_500, 1))}
    quick.put(facts)
    for name, vector in facts.items():
        exact.put(name, vector)
    asked = vectors(30, 2)
    found, wanted = quick.nearest(asked, 10, 0), exact.nearest(asked, 10, 0)
    same = sum(
        len({hit.fact_id for hit in hits} & {hit.fact_id for hit in best})
        for hits, best in zip(found, wanted, strict=True)
    )
    assert same / sum(map(len, wanted)) >= 0.99


@given(st.integers(0, 10_000), st.sampled_from([64, 300, 1_000]))
def test_changes_leave_no_trace(seed: int, dimensions: int) -> None:
    """With 8, 4 and 2 bits beside the int8."""
    dice, numbers = random.Random(seed), np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored_vector_store, "POOL_LEAST", 5)
        quick, exact = QuickMatrix(dimensions), ScopeMatrix(dimensions)
        for number in range(60):
            name, vector = (
                f"f{dice.randrange(25)}",
                numbers.standard_normal(dimensions).astype("<f4").tobytes(),
            )
            put(quick, name, vector)
            exact.put(name, vector)
            if dice.random() < 0.4:
                gone = f"f{dice.randrange(25)}"
                quick.remove(gone)
                exact.remove(gone)
            if number % 7 == 0:
                (found,), (wanted,) = (matrix.nearest([vector], 4, 0) for matrix in (quick, exact))
                assert [hit.similarity for hit in found] == pytest.approx(
                    [hit.similarity for hit in wanted], abs=5e-3
                )


def test_a_vector_of_another_length_takes_the_fact_out() -> None:
    quick = QuickMatrix(2)
    put(quick, "it", np.array([1, 2], "<f4").tobytes())
    quick.put({"it": b"", "other": np.array([2, 1], "<f4").tobytes()})
    assert quick.vectors(["it"]) == {}
    assert len(quick) == 1


def test_a_vector_of_nothing_is_near_to_nothing() -> None:
    quick = QuickMatrix(2)
    quick.put({f"f{number}": np.zeros(2, "<f4").tobytes() for number in range(300)})
    put(quick, "it", np.array([1, 2], "<f4").tobytes())
    ((hit,),) = quick.nearest([np.array([2, 4], "<f4").tobytes()], 3, 0.6)
    assert hit == ("it", pytest.approx(1, abs=1e-4))


@pytest.mark.parametrize(("dimensions", "digits"), [(64, 4), (384, 4), (768, 3), (1_536, 3)])
def test_a_vector_is_given_back_nearly_as_it_was_put(dimensions: int, digits: int) -> None:
    quick, numbers = QuickMatrix(dimensions), np.random.default_rng(1).standard_normal(dimensions)
    put(quick, "it", (5 * numbers).astype("<f4").tobytes())
    given = np.frombuffer(quick.vectors(["other", "it"])["it"], "<f4")
    assert given == pytest.approx(numbers / np.linalg.norm(numbers), abs=10**-digits)


@pytest.mark.parametrize(("dimensions", "most"), [(384, 384 + 192 + 4), (1_536, 1_536 + 384 + 4)])
def test_little_of_what_it_takes_is_unused(dimensions: int, most: int) -> None:
    quick, vector = QuickMatrix(dimensions), np.ones(dimensions, "<f4").tobytes()
    for start in range(0, 2_000, 100):
        quick.put({f"f{number}": vector for number in range(start, start + 100)})
    assert quick.size / 2_000 <= 1.07 * (most + 100)
