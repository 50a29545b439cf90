"""Words of any language as search compares them: folded, and pairs of characters where a script has no spaces."""

import re
import sys
import unicodedata
from collections.abc import Iterator
from functools import cache

_ACCENTS = re.compile("[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u064b-\u065f\u0670]")
"""Of Latin, Greek and Cyrillic; points of Hebrew, vowels and hamzas of Arabic."""
_UNSEEN = re.compile("[\u00ad\u0640\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
"""Soft hyphens, Arabic's stretching, joiners, and what only steers direction."""
_LETTERS = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "æ": "ae", "œ": "oe", "þ": "th", "\u0131": "i", "ħ": "h"}
    | {"\u0649": "\u064a", "\u0629": "\u0647", "\u06cc": "\u064a", "\u06a9": "\u0643"}
)
"""Letters that are written in two ways, and do not come apart into a letter and an accent."""
_ARABIC_ARTICLE = re.compile("^[\u0648\u0641\u0628\u0643]?\u0627\u0644(?=\\w{2})")
_ENGLISH_S = re.compile(r"'s(?<=\w's)\b")
_BREAKS = {code: " " for code in range(128) if not chr(code).isalnum()}
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
"""Thai, Lao, Burmese, Khmer, Japanese, Chinese; and Korean, whose endings stand on the words."""
_RUNS = re.compile(f"[{_UNSPACED}]+|[^{_UNSPACED}]+")
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")
BEGINNING = 40
"""Characters in which the first word of a text stands."""
LONGEST = 100
"""Characters of a word that are compared."""
COMPOUND, PART, PART_BESIDE = 9, 5, 3
"""Letters of a word that may be a compound; of a part that is looked for, and of what stands beside it, at least."""


def folded(text: str) -> str:
    """Compatibility forms made one, case and accents gone; vowel signs of Indic scripts stay."""
    if text.isascii():
        return text.lower()
    plain = _UNSEEN.sub("", unicodedata.normalize("NFKC", text)).casefold()
    bare = _ACCENTS.sub("", unicodedata.normalize("NFD", plain))
    return unicodedata.normalize("NFC", bare).translate(_LETTERS)


def words_of(text: str) -> list[str]:
    """The words that a text is found by, in order."""
    words = _split(text)
    if text.isascii():
        return [word[:LONGEST] for word in words] if len(text) > LONGEST else words
    return [part for word in words for part in _parts(word, single=True)]


def words_asked(text: str) -> list[str]:
    """The words of a query, each once; of a run without spaces only its pairs, where it is longer than one."""
    return list(dict.fromkeys(part for word in _split(text) for part in _parts(word, single=False)))


def first_word_of(text: str) -> str | None:
    """The word that a text begins with, as a query has it: of a run without spaces its first pair."""
    words = _split(text[:BEGINNING])
    return next(_parts(words[0], single=False), None) if words else None


def ends_of(word: str) -> Iterator[str]:
    """The beginnings and ends of a long word: what it is a compound of, in languages that write compounds as one."""
    if len(word) >= COMPOUND and spaced(word):
        for length in range(PART, len(word) - PART_BESIDE + 1):
            yield word[:length]
            yield word[-length:]


def spaced(word: str) -> bool:
    """Whether a word is of a script that has spaces: only there a typo can be told from another word."""
    return not _IS_UNSPACED.search(word)


def _split(text: str) -> list[str]:
    plain = _ENGLISH_S.sub("", folded(text).replace("\u2019", "'"))
    return plain.translate(_BREAKS).split() if plain.isascii() else _word().findall(plain)


def _parts(word: str, *, single: bool) -> Iterator[str]:
    if word.isascii():
        yield word[:LONGEST]
        return
    for run in _RUNS.findall(word):
        if spaced(run):
            yield _ARABIC_ARTICLE.sub("", run)[:LONGEST]
            continue
        if single or len(run) == 1:
            yield from run
        yield from (run[at : at + 2] for at in range(len(run) - 1))


@cache
def _word() -> re.Pattern[str]:
    r"""Letters, digits and the marks that belong to them, which `\w` leaves out."""
    marks = "".join(
        character
        for character in map(chr, range(0x0300, min(sys.maxunicode, 0xFFFF)))
        if unicodedata.category(character) in {"Mn", "Mc"}
    )
    return re.compile(f"(?:[^\\W_]|[{re.escape(marks)}])+")
