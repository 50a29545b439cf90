"""Words of any language as search compares them: folded, and pairs of characters where a script has no spaces."""

import re
import sys
import unicodedata
from collections.abc import Iterator
from functools import cache

_ACCENTS = re.compile("[\u0300-\u036f]")
_ENGLISH_S = re.compile(r"'s(?<=\w's)\b")
_BREAKS = {code: " " for code in range(128) if not chr(code).isalnum()}
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
"""Thai, Lao, Burmese, Khmer, Japanese, Chinese; and Korean, whose endings stand on the words."""
_RUNS = re.compile(f"[{_UNSPACED}]+|[^{_UNSPACED}]+")
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")
LONGEST = 100
"""Characters of a word that are compared."""


def folded(text: str) -> str:
    """Compatibility forms made one, case and accents gone; vowel signs of Indic scripts stay."""
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKC", text).casefold()
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", plain)))


def words_of(text: str) -> list[str]:
    """The words that a text is found by, in order."""
    words = _split(text)
    if text.isascii():
        return [word[:LONGEST] for word in words] if len(text) > LONGEST else words
    return [part for word in words for part in _parts(word, single=True)]


def words_asked(text: str) -> list[str]:
    """The words of a query, each once; of a run without spaces only its pairs, where it is longer than one."""
    return list(dict.fromkeys(part for word in _split(text) for part in _parts(word, single=False)))


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
            yield run[:LONGEST]
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
