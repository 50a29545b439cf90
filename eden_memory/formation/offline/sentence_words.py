"""Sentences, the words in them, and the values (names, numbers, dates) that make a statement specific."""

import re
from functools import cache
from pathlib import Path

import yaml

_SHORT = (
    r"(?<!\b(?:Dr|Mr|Ms|St|vs|ca)\.)(?<!\b(?:Mrs|e\.g|i\.e)\.)(?<!\bapprox\.)"
    r"(?:(?<!\b[A-Z]\.)|(?=\s+(?:So|But|And|The|I|It|She|He|We|They|My)\b))"
)
_ENDS = re.compile(_SHORT + r"(?:(?<=[.!?…])|(?<=[.!?…][\"'”)]))\s+(?=[^\sa-z])|\n+")
_CODE = re.compile(r"```.*?(?:```|\Z)|^>.*$", re.S | re.M)
_QUOTED = re.compile(r"(?<!\S)[\"“«](?=\S)([^\"”»]*)(?:[\"”»]|\Z)")
_LONGEST = 600
"""Characters of a sentence: what is longer is a list or a log, no statement, and slow to match."""
_WORD = re.compile(r"[^\W_]+(?:[-'.,:@/][^\W_]+)*")


@cache
def english() -> dict[str, list[str]]:
    """Read the lists of english.yaml, once."""
    lists: dict[str, str] = yaml.safe_load(Path(__file__).with_name("english.yaml").read_text("utf-8"))
    return {name: text.split(" | ") if "|" in text else text.split() for name, text in lists.items()}


@cache
def pattern(template: str) -> re.Pattern[str]:
    """Compile a template that ignores case; `{name}` in it matches any entry of that list, as whole words."""
    while (filled := re.sub(r"\{([a-z_]+)\}", lambda m: _any_of(m[1]), template)) != template:
        template = filled
    return re.compile(template, re.I)


def _any_of(name: str) -> str:
    return rf"(?<!\w)(?:{'|'.join(english()[name])})(?!\w)"


def says(text: str, *names: str) -> bool:
    """Return whether a text holds an entry of one of the lists."""
    return any(pattern(f"{{{name}}}").search(text) for name in names)


def sentences(text: str) -> list[str]:
    """Split a text into sentences, without code, long quotations and pieces too long for a sentence."""
    text = _CODE.sub(" … ", text.replace("\u2019", "'"))
    text = _QUOTED.sub(lambda m: m[0] if len(m[1]) < 30 else " … ", text)
    pieces = (" ".join(piece.split()) for piece in _ENDS.split(text))
    return [piece for piece in pieces if piece.strip(" …") and len(piece) <= _LONGEST]


def plain(word: str) -> str:
    """Stem a word: small letters, no possessive or common ending, at most six letters; numbers as digits."""
    low = word.lower().removesuffix("'s").rstrip(".,:")
    if low in english()["counts"]:
        return str(english()["counts"].index(low) + 2)
    return low if low[:1].isdigit() else re.sub(r"(?<=\w{3})(?:ing|ie[sd]|ed|es|(?<!s)s|e|y)$", "", low)[:6]


def content(text: str) -> frozenset[str]:
    """Return the stems of the words that carry the meaning."""
    return frozenset(plain(word) for word in _WORD.findall(text) if word.lower() not in english()["stop"])


def names(text: str) -> frozenset[str]:
    """Return words written as names: capitalised inside a sentence, or first in it before another one."""
    common = {*english()["stop"], *english()["months"], *english()["days"]}
    found: set[str] = set()
    for sentence in sentences(text):
        words = [word.removesuffix("'s") for word in _WORD.findall(sentence)]
        upper = [word[0].isupper() and word.split("'")[0].lower() not in common for word in words]
        found.update(word for at, word in enumerate(words) if upper[at] and (at or upper[1:2] == [True]))
    return frozenset(found)


def numbers(text: str) -> frozenset[str]:
    """Return the numbers of a text, those in words (two to twelve) as digits."""
    words = (plain(word) for word in _WORD.findall(text))
    return frozenset(re.sub(r"(?<=\d)(?:st|nd|rd|th)$", "", word) for word in words if word[0].isdigit())


def dates(text: str) -> frozenset[str]:
    """Return the days that a text names: `29 may`, without a year, and weekdays."""
    listed = pattern(r"((?:\b\d{1,2}(?:st|nd|rd|th)?(?:,| and| to|-| )+){1,6})({months})").findall(text)
    days = {f"{day} {month.lower()}" for many, month in listed for day in re.findall(r"\d+", many)}
    return frozenset(days | {day.lower() for day in pattern("{days}").findall(text.replace("days", "day"))})
