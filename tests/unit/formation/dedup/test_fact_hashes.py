"""When two texts are the same statement."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.memory.memory_batch import fact_hash, fact_id, normalised


@pytest.mark.parametrize(
    "other",
    [
        "ana LIVES in lyon",
        "Ana lives in Lyon.",
        "  Ana\tlives\nin  Lyon !! ",
        "\uff21na lives in Lyon。",
        "Ana lives in Lyon…",
    ],
)
def test_case_width_spaces_and_the_end_do_not_matter(other: str) -> None:
    assert fact_hash(other) == fact_hash("Ana lives in Lyon")


@pytest.mark.parametrize(
    "other", ["Ana lives in Lyo", "Ana-lives in Lyon", "Ana lives in Lyon 2", "Ana lives, in Lyon"]
)
def test_what_differs_inside_differs(other: str) -> None:
    assert fact_hash(other) != fact_hash("Ana lives in Lyon")


def test_texts_of_punctuation_alone_are_not_all_one() -> None:
    assert len({fact_hash("?"), fact_hash("!"), fact_hash("...")}) == 3


@given(st.text())
def test_normalising_twice_changes_nothing(text: str) -> None:
    assert normalised(normalised(text)) == normalised(text)


def test_ids_tell_origins_scopes_and_numbers_apart() -> None:
    ids = {fact_id(origin, scope, number) for origin in "ab" for scope in "cd" for number in (1, 2)}
    assert len(ids) == 8
