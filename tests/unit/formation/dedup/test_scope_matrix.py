"""A scope's vectors against plain arithmetic, in whatever order they came."""

from math import isclose, sqrt

from hypothesis import given
from hypothesis import strategies as st

from eden_memory.memory.scope_matrix import ScopeMatrix, matrix_of, nearest_before
from eden_memory.schemas.fields import pack_vector, unpack_vector

NUMBERS = st.lists(st.integers(-99, 99).map(lambda one: one / 100), min_size=3, max_size=3).map(tuple)
STEPS = st.lists(st.tuples(st.sampled_from("abcdefghijkl"), st.none() | NUMBERS), max_size=40)


def similarity(left: bytes, right: bytes) -> float:
    a, b = unpack_vector(left), unpack_vector(right)
    lengths = sqrt(sum(x * x for x in a)) * sqrt(sum(x * x for x in b))
    return 0.5 if lengths == 0 else (1 + sum(x * y for x, y in zip(a, b, strict=True)) / lengths) / 2


@given(STEPS, NUMBERS)
def test_it_finds_what_counting_by_hand_finds(
    steps: list[tuple[str, tuple[float, ...] | None]], asked: tuple[float, ...]
) -> None:
    matrix, expected = ScopeMatrix(3), dict[str, bytes]()
    for name, numbers in steps:
        if numbers is None:
            matrix.remove(name)
            expected.pop(name, None)
        else:
            assert matrix.put(name, pack_vector(numbers))
            expected[name] = pack_vector(numbers)
    (found,) = matrix.nearest([pack_vector(asked)], 100, 0)
    assert len(matrix) == len(expected)
    assert {hit.fact_id for hit in found} == expected.keys()
    for hit in found:
        assert isclose(hit.similarity, similarity(pack_vector(asked), expected[hit.fact_id]), abs_tol=1e-4)
    assert [hit.similarity for hit in found] == sorted((hit.similarity for hit in found), reverse=True)


def test_the_best_above_the_threshold_come_first_and_ties_by_id() -> None:
    vectors = {"far": (-1, 0), "b": (1, 0), "a": (2, 0), "half": (0, 1), "near": (1, 0.1)}
    matrix = matrix_of(((name, pack_vector(numbers)) for name, numbers in vectors.items()), 2)
    (found,) = matrix.nearest([pack_vector((3, 0))], 3, 0.5)
    assert [hit.fact_id for hit in found] == ["a", "b", "near"]
    assert [hit.similarity for hit in found[:2]] == [1, 1]
    (all_near,) = matrix.nearest([pack_vector((3, 0))], 10, 0.5)
    assert [hit.fact_id for hit in all_near] == ["a", "b", "near", "half"]


def test_a_vector_of_another_length_is_not_taken_and_takes_the_old_one_out() -> None:
    matrix = matrix_of([("a", pack_vector((1, 0)))], 2)
    assert not matrix.put("a", pack_vector((1, 0, 0)))
    assert "a" not in matrix
    assert matrix.nearest([pack_vector((1, 0))], 5, 0) == [[]]


@given(st.lists(NUMBERS, max_size=12), st.sampled_from((0.1003, 0.5003, 0.7003, 0.9003)))
def test_those_before_are_found_as_one_after_the_other_finds_them(
    numbers: list[tuple[float, ...]], least: float
) -> None:
    vectors = [pack_vector(one) for one in numbers]
    ids = [f"{place:02}" for place in range(len(vectors))]
    found = nearest_before(ids, vectors, 4, least)
    for place, hits in enumerate(found):
        (expected,) = matrix_of(zip(ids[:place], vectors, strict=False), 3).nearest(
            [vectors[place]], 4, least
        )
        assert len(hits) == len(expected)
        pairs = zip(hits, expected, strict=True)
        assert all(isclose(one.similarity, other.similarity, abs_tol=1e-5) for one, other in pairs)
        assert {hit.fact_id for hit in hits} <= set(ids[:place])
