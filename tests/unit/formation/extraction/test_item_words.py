"""One item never exceeds its words, whatever language it is written in."""

from hypothesis import given
from hypothesis import strategies as st

from eden_memory.limits import CHARACTERS_OF_A_WORD, fitted, words_of

texts = st.lists(
    st.text(st.characters(exclude_categories=("Z", "C")), min_size=1, max_size=12), max_size=80
).map(" ".join)


@given(texts, st.integers(1, 40))
def test_an_item_is_a_beginning_of_the_text_within_both_bounds(text: str, limit: int) -> None:
    short = fitted(text, limit)
    assert words_of(short) <= limit
    assert len(short) <= limit * CHARACTERS_OF_A_WORD
    assert text.startswith(short)


@given(texts, st.integers(1, 40))
def test_what_fits_stays_as_it_is(text: str, limit: int) -> None:
    if words_of(text) <= limit and len(text) <= limit * CHARACTERS_OF_A_WORD:
        assert fitted(text, limit) == text.strip()


def test_an_abbreviation_near_the_start_does_not_cost_the_whole_item() -> None:
    assert fitted("Dr. Smith of the clinic in Gothenburg treats boats with wood glue", 8).startswith(
        "Dr. Smith of"
    )


def test_text_without_spaces_is_bounded_too() -> None:
    assert len(fitted("船" * 10_000, 30)) == 30 * CHARACTERS_OF_A_WORD
