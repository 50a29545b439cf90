"""Remove the characters that a reader of a text would not see: an instruction for a model can hide in them. Pure.

These are control characters, surrogates, and what Unicode calls ignorable: direction marks, tags, variation
selectors, fillers, and what has no width. Format characters that are drawn stay, such as the signs of Arabic numbers.
"""

import re

_LINE_END = re.compile("\r\n|[\r\x0b\x0c\x1c-\x1f\x85\u2028\u2029]")
_UNSEEN = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ud800-\udfff\ufdd0-\ufdef\ufff0-\ufffb\ufffe\uffff"
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
"""Runs of them. A test compares these ranges with Unicode's categories."""
_JOINING = re.compile("(?:[\ufe0e\ufe0f]|[\u180b-\u180f])?[\u200c\u200d]?")
"""What scripts and emoji need: how an emoji looks, Mongolian forms, and one joiner. All else of a run goes."""
_KEYCAP = re.compile("[0-9#*]\ufe0f")


def without_unseen(text: str) -> str:
    """Return a text as it looks; each of its lines ends with a line feed.

    Joiners (U+200C, U+200D), the two selectors of emoji and those of Mongolian stay: one selector, then one joiner,
    and not behind ASCII, because a message hides in runs of them.
    """
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return _UNSEEN.sub(_seen, _LINE_END.sub("\n", text))


def _seen(run: re.Match[str]) -> str:
    at = run.start()
    before = run.string[at - 1 : at] if at else ""
    if before.isascii() or before.isspace():  # also nothing
        keycap = _KEYCAP.match(run.string, at - 1) if before else None
        return keycap.group()[1:] if keycap else ""
    joining = _JOINING.match(run.group())
    return joining.group() if joining else ""
