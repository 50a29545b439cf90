"""What a reader would not see leaves a text, and what scripts and emoji need stays."""

# ruff: noqa: RUF001 - other scripts have letters like ours

import sys
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.redaction import without_unseen

DRAWN = {
    *range(0x600, 0x606),  # signs of Arabic numbers
    *(0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD),
    *range(0x13430, 0x13456),  # how Egyptian signs stand together
}
"""Format characters that a reader sees."""
IGNORABLE = {
    *(0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0, 0x2065),
    *range(0x180B, 0x1810),
    *range(0xFE00, 0xFE10),
    *range(0xFFF0, 0xFFF9),
    *range(0xE0000, 0xE1000),
}
"""Unicode's Default_Ignorable_Code_Point, where the category does not say it."""
LINE_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\u2028\u2029"


def test_every_character_is_judged_by_its_category() -> None:
    """A new version of Unicode may have more of them: then the ranges are to be extended."""
    for code in range(sys.maxunicode + 1):
        one = chr(code)
        goes = (category(one) in {"Cc", "Cf", "Cs", "Zl", "Zp"} and code not in DRAWN) or code in IGNORABLE
        noncharacter = 0xFDD0 <= code <= 0xFDEF or code in {0xFFFE, 0xFFFF}
        if one in LINE_ENDS:
            expected = "a\nb"
        elif one == "\t":
            expected = "a\tb"
        else:
            expected = "ab" if goes or noncharacter else f"a{one}b"
        assert without_unseen(f"a{one}b") == expected, hex(code)


@pytest.mark.parametrize(
    "text",
    [
        "👩\u200d💻 and ❤\ufe0f\u200d🔥 and ☎\ufe0e",
        "1\ufe0f\u20e3 #\ufe0f\u20e3",
        "می\u200cخواهم",
        "ක්\u200dෂ and क्\u200c",
        "ᠬ\u180b",
        "日本語、한국어 and العربية ۝ ١٢٣",
    ],
)
def test_what_scripts_and_emoji_need_stays(text: str) -> None:
    assert without_unseen(text) == text


@given(st.lists(st.integers(0, 255), min_size=1, max_size=20))
def test_bytes_written_as_variation_selectors_are_gone(hidden: list[int]) -> None:
    """The known way to hide a text behind an emoji: one selector for each byte."""
    written = "".join(chr(0xFE00 + byte if byte < 16 else 0xE0100 + byte - 16) for byte in hidden)
    assert without_unseen(f"🙂{written}!") in ("🙂!", "🙂\ufe0e!", "🙂\ufe0f!")


@given(st.lists(st.sampled_from("\u200b\u200c\u200d\u2060\ufeff\u200e"), min_size=2, max_size=20))
def test_a_row_of_joiners_is_gone(hidden: list[str]) -> None:
    written = "".join(hidden)
    assert without_unseen(f"see{written} you") == "see you"
    assert len(without_unseen(f"می{written}خواهم")) <= len("می\u200cخواهم")


@given(st.text())
def test_doing_it_again_changes_nothing(text: str) -> None:
    once = without_unseen(text)
    assert without_unseen(once) == once
