"""Word diffs: what is gone and new can be read off, and put together again."""

from hypothesis import given
from hypothesis import strategies as st

from eden_memory.replay.comparing.report import Run, shortened, word_diff, words_changed

TEXTS = st.lists(st.sampled_from(["a", "b", "c", "d", "e", "f"]), max_size=40).map(" ".join)


@given(TEXTS, TEXTS)
def test_both_texts_can_be_read_off_a_diff(before: str, after: str) -> None:
    runs = word_diff(before, after)
    assert " ".join(one.text for one in runs if one.said != "new") == before
    assert " ".join(one.text for one in runs if one.said != "gone") == after
    assert (words_changed(runs) == 0) == (before == after)


@given(TEXTS, TEXTS)
def test_shortening_leaves_out_only_words_that_are_the_same(before: str, after: str) -> None:
    runs = word_diff(before, after)
    short = shortened(runs, 2)
    assert [one for one in short if one.said in ("gone", "new")] == [
        one for one in runs if one.said in ("gone", "new")
    ]
    left_out = sum(int(one.text) for one in short if one.said == "left_out")
    kept = sum(len(one.text.split()) for one in short if one.said == "same")
    assert left_out + kept == sum(len(one.text.split()) for one in runs if one.said == "same")


def test_a_long_text_is_shortened_to_what_has_changed() -> None:
    words = [f"w{place}" for place in range(100)]
    runs = shortened(word_diff(" ".join(words), " ".join([*words[:50], "new", *words[51:]])), 2)
    assert runs == [
        Run("left_out", "48"),
        Run("same", "w48 w49"),
        Run("gone", "w50"),
        Run("new", "new"),
        Run("same", "w51 w52"),
        Run("left_out", "47"),
    ]
