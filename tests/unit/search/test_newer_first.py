"""Of two facts about the same the newer stands first, for questions about now; other order stays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.search.fact_candidates import Scored
from eden_memory.search.newer import asks_for_now, newer_first
from tests.unit.search.candidate_facts import fact, ids, scored

NEAR, FAR = (1.0, 0.9), (-1.0, 0.3)


def test_the_newer_of_two_about_the_same_moves_above_the_older() -> None:
    found = newer_first(
        scored(
            (fact("old", "Ana lives in Lisbon.", days=90, vector=(1.0, 0.1)), 0.9),
            (fact("other", "Ana has a dog.", days=10, vector=(-0.2, 1.0)), 0.8),
            (fact("new", "Ana moved to Porto.", days=2, vector=(1.0, 0.6)), 0.7),
        )
    )
    assert ids(found) == ["new", "old", "other"]
    assert [one.score for one in found] == [0.9, 0.9, 0.8]


@pytest.mark.parametrize(
    "second",
    [
        fact("b", "Ana moved to Porto.", days=200, vector=NEAR),
        fact("b", "Ben moved to Porto.", days=2, vector=NEAR),
        fact("b", "Ana moved to Porto.", days=2, vector=FAR),
        fact("b", "Ana moved to Porto.", days=2, vector=NEAR, scope_key="user:s.a:s.b"),
    ],
    ids=["older", "of another", "about something else", "of another scope"],
)
def test_others_keep_their_place(second: object) -> None:
    first = fact("a", "Ana lives in Lisbon.", days=90, vector=NEAR)
    assert ids(newer_first(scored((first, 0.9), (second, 0.7)))) == ["a", "b"]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("older", "newer", "moves"),
    [
        ("The deadline of Ben's project is in May.", "Ben moved it to June.", True),
        ("The user lives in Malaga.", "The user moved to Utrecht.", True),
        ("Ana lives in Malaga.", "Ben moved to Utrecht.", False),
        ("The user lives in Malaga.", "Ben moved to Utrecht.", False),
    ],
)
def test_subjects_are_told_apart_by_their_names(older: str, newer: str, *, moves: bool) -> None:
    known, told = fact("old", older, days=90, vector=NEAR), fact("new", newer, days=2, vector=NEAR)
    assert ids(newer_first(scored((known, 0.9), (told, 0.7)))) == (
        ["new", "old"] if moves else ["old", "new"]
    )


@pytest.mark.parametrize("question", ["Where does Ana live?", "Ana's job", "What phone does Ana have?"])
def test_questions_about_now(question: str) -> None:
    assert asks_for_now(question)


@pytest.mark.parametrize(
    "question", ["Where did Ana live?", "Ana's first job", "Which cities has Ana visited?"]
)
def test_questions_about_then(question: str) -> None:
    assert not asks_for_now(question)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 99), st.booleans()), max_size=25))
def test_all_stay_and_scores_fall(rows: list[tuple[float, float, bool]]) -> None:
    found = sorted(
        (
            Scored(fact(f"f{at}", "Ana moved.", days=days, vector=NEAR if near else FAR), score)
            for at, (score, days, near) in enumerate(rows)
        ),
        key=lambda one: -one.score,
    )
    after = newer_first(found)
    assert sorted(ids(after)) == sorted(ids(found))
    assert [one.score for one in after] == sorted((one.score for one in after), reverse=True)
