"""Lists become one order: by ranks as the formula says, by scores between 0 and 1, whatever is in them."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.schemas.fields import pack_vector
from eden_memory.search.fact_candidates import Ranked
from eden_memory.search.ranking_stages import QueryLists, by_rank, by_score, similarity_to
from tests.unit.search.candidate_facts import fact, ids, ranked

A, B, C = fact("a"), fact("b", vector=(0.0, 1.0)), fact("c", vector=None)
NUMBERS = st.lists(st.integers(0, 30), unique=True, max_size=12)


def made(numbers: list[int], scale: float = 1.0) -> list[Ranked]:
    return [Ranked(fact(f"f{number}"), scale / (2 + place)) for place, number in enumerate(numbers)]


def test_reciprocal_ranks_add_up_over_all_lists() -> None:
    lists = QueryLists(ranked((A, 0.9), (B, 0.8)), ranked((B, 7.0), (C, 3.0)))
    found = {one.fact.fact_id: one.score for one in by_rank([lists], 60)}
    assert found == pytest.approx({"a": 1 / 61, "b": 1 / 62 + 1 / 61, "c": 1 / 62})


def test_the_sixth_of_one_list_reaches_a_fused_threshold_of_0_015_and_the_seventh_does_not() -> None:
    lists = QueryLists(made(list(range(20))), None)
    assert [one.score >= 0.015 for one in by_rank([lists], 60)[:8]] == [True] * 6 + [False] * 2


def test_by_scores_the_best_of_both_lists_has_one() -> None:
    lists = QueryLists(ranked((A, 0.9), (B, 0.6)), ranked((A, 7.0), (C, 3.5)))
    found = {one.fact.fact_id: one.score for one in by_score([lists], 0.4, 0.5)}
    assert found == pytest.approx({"a": 1.0, "b": 0.6 * 0.25, "c": 0.4 * 0.5})


def test_what_only_words_found_is_compared_with_the_query_too() -> None:
    asked = A.vector
    lists = QueryLists(ranked((A, 1.0)), ranked((fact("same"), 2.0)), asked)
    found = {one.fact.fact_id: one for one in by_score([lists], 0.4, 0.5)}
    assert found["same"].scores["semantic"] == pytest.approx(1.0)
    assert found["same"].score == pytest.approx(1.0)


def test_a_list_that_failed_leaves_the_other_alone() -> None:
    words = ranked((B, 5.0), (A, 1.0))
    assert ids(by_score([QueryLists(None, words)], 0.4, 0.5)) == ["b", "a"]
    assert ids(by_score([QueryLists(ranked((B, 0.9), (A, 0.7)), None)], 0.4, 0.5)) == ["b", "a"]


def test_unrelated_texts_keep_their_order() -> None:
    assert ids(by_score([QueryLists(ranked((B, 0.45), (A, 0.41)), None)], 0.4, 0.5)) == ["b", "a"]


def test_a_fact_counts_by_the_query_that_it_answers_best() -> None:
    first = QueryLists(ranked((A, 0.9), (B, 0.6)), None)
    second = QueryLists(ranked((B, 0.9), (A, 0.6)), None)
    assert [one.score for one in by_score([first, second], 0.4, 0.5)] == pytest.approx([1.0, 1.0])


@given(NUMBERS, NUMBERS, st.floats(1, 100))
def test_by_ranks_nothing_is_lost_or_doubled_and_the_order_of_lists_does_not_matter(
    one: list[int], other: list[int], k: float
) -> None:
    found = by_rank([QueryLists(made(one), made(other))], k)
    again = by_rank([QueryLists(made(other), made(one))], k)
    assert sorted(ids(found)) == sorted({f"f{number}" for number in one + other})
    assert ids(found) == ids(again)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)


@given(NUMBERS, NUMBERS, st.floats(0, 1), st.floats(0, 0.99), st.floats(0.01, 500))
def test_by_scores_every_fact_is_once_between_0_and_1_whatever_the_stores_scale(
    one: list[int], other: list[int], weight: float, unrelated: float, scale: float
) -> None:
    def run(size: float) -> list[Any]:
        return by_score([QueryLists(made(one), made(other, size))], weight, unrelated)

    found = run(scale)
    assert sorted(ids(found)) == sorted({f"f{number}" for number in one + other})
    assert all(-1e-9 <= one.score <= 1 + 1e-9 for one in found)
    plain = {one.fact.fact_id: one.score for one in run(1.0)}
    assert {one.fact.fact_id: one.score for one in found} == pytest.approx(plain)


def test_what_is_near_to_everything_gives_way_behind_the_best_and_keeps_its_similarity() -> None:
    query = (1.0, 0.0, 0.0)
    best, hub = fact("best", "x", vector=(1.0, 0.0, 0.1)), fact("hub", "x", vector=(0.8, 0.6, 0.0))
    apart = fact("apart", "x", vector=(0.75, -0.2, 0.6))
    crowd = [fact(f"crowd {n}", "x", vector=(0.5, 0.8 + n / 100, 0.0)) for n in range(25)]
    found = [best, hub, apart, *crowd]
    similar = list(zip(found, similarity_to(pack_vector(query), found), strict=True))
    lists = [QueryLists(ranked(*sorted(similar, key=lambda pair: -pair[1])), ranked((best, 1.0)))]
    before = by_score(lists, 0.4, 0.5)
    after = by_score(lists, 0.4, 0.5, 0.9)
    assert ids(before)[:3] == ["best", "hub", "apart"]
    assert ids(after)[:3] == ["best", "apart", "hub"]
    assert after[0].score - after[1].score >= before[0].score - before[1].score - 1e-9
    assert 0 <= min(one.score for one in after) <= max(one.score for one in after) <= 1
    assert {one.fact.fact_id: one.scores["semantic"] for one in after} == {
        one.fact.fact_id: one.scores["semantic"] for one in before
    }


def test_without_vectors_nothing_is_a_hub() -> None:
    lists = [QueryLists(ranked((A, 0.9), (B, 0.7), (C, 0.6)), ranked((A, 1.0)))]
    bare = [
        QueryLists([Ranked(replace(one.fact, vector=None), one.score) for one in lists[0].semantic or ()], [])
    ]
    assert ids(by_score(bare, 0.4, 0.5, 0.9)) == ids(by_score(bare, 0.4, 0.5))
