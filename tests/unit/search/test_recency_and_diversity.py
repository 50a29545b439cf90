"""Recency, diversity, siblings and reranking keep what they are given, and order it as their formulas say."""

from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.models.rerankers import relevance
from eden_memory.search.fact_candidates import Scored
from eden_memory.search.ranking import (
    apply_recency,
    boost_shared,
    boost_siblings,
    boost_subjects,
    freshness,
    reranked,
)
from eden_memory.search.ranking_stages import diverse
from eden_memory.search.text_index import first_stem, stems_asked
from tests.unit.search.candidate_facts import NOW, fact, ids, scored

SCORES = st.floats(0, 1)
FOUND = st.lists(
    st.tuples(SCORES, st.floats(-10, 900), st.tuples(st.floats(-1, 1), st.floats(-1, 1))), max_size=12
).map(
    lambda rows: scored(
        *((fact(f"f{at}", days=days, vector=vector), score) for at, (score, days, vector) in enumerate(rows))
    )
)


def test_a_months_old_fact_has_the_freshness_of_1_over_e() -> None:
    month_old = fact("a", days=30)
    assert freshness(month_old.valid_from, NOW) == pytest.approx(exp(-1))
    assert freshness(fact("b", days=-3).valid_from, NOW) == 1.0
    assert apply_recency(scored((month_old, 0.5)), 0.2, NOW)[0].score == pytest.approx(
        0.8 * 0.5 + 0.2 * exp(-1)
    )


@given(FOUND, st.floats(0, 1))
def test_recency_keeps_all_and_of_equal_relevance_the_newer_is_first(
    found: list[Scored], weight: float
) -> None:
    after = apply_recency(found, weight, NOW)
    assert sorted(ids(after)) == sorted(ids(found))
    level = apply_recency([Scored(one.fact, 0.5) for one in found], 0.5, NOW)
    stated = [min(one.fact.valid_from, NOW) for one in level]
    assert stated == sorted(stated, reverse=True)


@given(FOUND, st.integers(0, 15), st.floats(0, 1))
def test_diversity_picks_without_repeating_and_begins_with_the_best(
    found: list[Scored], most: int, trade: float
) -> None:
    best = sorted(found, key=lambda one: -one.score)
    picked = diverse(best, most, trade)
    assert len(picked) == min(most, len(found))
    assert len(set(ids(picked))) == len(picked)
    assert set(ids(picked)) <= set(ids(found))
    if picked and trade > 0:
        assert picked[0].score == pytest.approx(best[0].score)
    assert ids(diverse(best, most, 1.0)) == ids(best[:most])


def test_of_two_that_say_the_same_the_second_gives_way() -> None:
    found = scored(
        (fact("a", vector=(1, 0)), 0.9),
        (fact("same", vector=(1, 0)), 0.85),
        (fact("other", vector=(0, 1)), 0.6),
    )
    assert ids(diverse(found, 2, 0.7)) == ["a", "other"]


def test_a_fact_without_a_vector_is_like_nothing() -> None:
    found = scored((fact("a"), 0.9), (fact("b", vector=None), 0.8), (fact("c"), 0.7))
    assert ids(diverse(found, 2, 0.5)) == ["a", "b"]


def test_facts_of_the_best_ones_conversation_are_lifted_above_strangers() -> None:
    best, sibling = fact("best", session="s.1"), fact("sibling", session="s.1")
    stranger, later = fact("stranger", session="s.2"), fact("later", session="s.1", days=-2)
    found = boost_siblings(scored((best, 1.0), (stranger, 0.5), (sibling, 0.45), (later, 0.45)), 0.6)
    assert ids(found) == ["best", "sibling", "stranger", "later"]
    assert found[0].score == pytest.approx(1.0)
    assert found[1].score == pytest.approx((0.45 + 0.6) / 1.6)


def test_siblings_of_another_scope_lift_nothing() -> None:
    found = boost_siblings(
        scored((fact("a", session="s.1"), 1.0), (fact("b", session="s.1", scope_key="user:s.a:s.b"), 0.5)),
        0.6,
    )
    assert found[1].score == pytest.approx(0.5)


@pytest.mark.parametrize("name", ["राम", "செல்வி", "ক্লারা", "Żółw", "Nora"])
def test_the_first_word_of_a_fact_is_that_of_a_question_in_any_script(name: str) -> None:
    assert first_stem(f"{name} 2024") in stems_asked(f"2023 {name}")


@given(FOUND, st.floats(0, 3))
def test_lifting_keeps_all_and_never_lowers_the_best(found: list[Scored], weight: float) -> None:
    after = boost_siblings(found, weight)
    assert sorted(ids(after)) == sorted(ids(found))
    if found:
        assert max(one.score for one in after) == pytest.approx(max(one.score for one in found))


def test_a_fact_that_begins_with_a_word_of_the_question_rises() -> None:
    found = boost_subjects(
        scored(
            (fact("other", "Ben met Nora in May."), 0.9),
            (fact("subject", "Nora's boat is in the harbour."), 0.85),
        ),
        stems_asked("What does Nora own?"),
        0.15,
    )
    assert ids(found) == ["subject", "other"]
    assert found[0].score == pytest.approx(0.9)


BEST = [(fact(f"best{at}", f"Ana took the ferry to Brest on day {at}."), 0.9) for at in range(5)]


def test_rare_words_of_the_best_raise_what_stands_behind_them_up_to_the_last_of_these() -> None:
    tail = [(fact(f"tail{at}", "Ana wrote a letter."), 0.5) for at in range(8)]
    shares = (fact("shares", "The ferry was late."), 0.45)
    found = boost_shared(scored(*BEST, *tail, shares), frozenset(), 0.15)
    assert ids(found)[:6] == [*(candidate.fact_id for candidate, _ in BEST), "shares"]
    assert found[5].score == pytest.approx(0.6)
    assert boost_shared(found, frozenset(), 9.0)[5].score == found[4].score


def test_words_of_the_question_do_not_raise_again() -> None:
    tail = (fact("tail", "Ana wrote a letter."), 0.5), (fact("shares", "The ferry was late."), 0.45)
    found = boost_shared(scored(*BEST, *tail), stems_asked("the ferry"), 0.15)
    assert ids(found)[5:] == ["tail", "shares"]


@given(FOUND, SCORES)
def test_shared_words_and_subjects_keep_all_and_scores_fall(found: list[Scored], weight: float) -> None:
    ordered = boost_subjects(found, frozenset({"f1"}), weight)
    for after in (ordered, boost_shared(ordered, frozenset(), weight)):
        assert sorted(ids(after)) == sorted(ids(found))
        assert [one.score for one in after] == sorted((one.score for one in after), reverse=True)
        assert max((one.score for one in after), default=0) == pytest.approx(
            max((one.score for one in found), default=0)
        )


@given(st.floats(-1e6, 1e6))
def test_relevance_is_a_probability(score: float) -> None:
    assert 0 <= relevance(score) <= 1
    assert relevance(score) + relevance(-score) == pytest.approx(1)


def test_a_reranker_decides_the_order_and_drops_what_is_not_relevant() -> None:
    found = scored((fact("a"), 0.9), (fact("b"), 0.8), (fact("c"), 0.7))
    assert ids(reranked(found, [0.4, 0.34, 0.95])) == ["c", "a"]
