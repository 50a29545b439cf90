"""Rules that tell words which may be a person's name from products, places and other capitalised words. Pure.

Without proof a capitalised word is a name: of an unknown one, only its neighbours or its form can prove the opposite.
"""

import re
from collections.abc import Sequence

from eden_memory.formation.plain_languages import CAPITALS, TITLES, Language, is_among
from eden_memory.formation.product_words import (
    ALSO_MONTHS,
    ALSO_VERBS,
    ARTICLES,
    DOMAINS,
    PARTS,
    PRODUCTS,
    RUNS,
    SOFTWARE,
    UNITS,
)

_INNER_CAPITAL = re.compile(r"(?!Mc|Mac|De|Di|La|Le)\w+[a-z][A-Z]")


def may_be_a_name(words: Sequence[str], at: int, language: Language) -> bool:
    """Return whether a word may be a person's name; in a script without capitals any word may."""
    word, low = words[at], words[at].casefold()
    if _has_no_capitals(word) or is_among(TITLES, low):
        return True
    if not word[0].isupper() or is_among(f"{language.subjects} {language.everybody} {CAPITALS}", low):
        return False
    if _is_a_product(words, at):
        return False
    if _low(words, at + 1) == "s":
        return True
    if not at and is_among(language.openers, low):
        return False
    return not (_is_technical(word) or _is_numbered(words, at) or _is_placed(words, at, language))


def _has_no_capitals(word: str) -> bool:
    return any(character.isalpha() and character.lower() == character.upper() for character in word)


def _is_technical(word: str) -> bool:
    """Return whether its form is no name's: `S3`, `AWS`, `GitHub`."""
    is_code = any(map(str.isdigit, word)) or (len(word) > 1 and word.isupper())
    return is_code or _INNER_CAPITAL.match(word) is not None


def _is_a_product(words: Sequence[str], at: int) -> bool:
    """Return whether it is a known product, part of one's name, or what the words around it call software."""
    first = at
    while first and is_among(PARTS, _low(words, first)):
        first -= 1
    known = _low(words, first).split("-")[0]
    if is_among(PRODUCTS, known) or is_among(DOMAINS, _low(words, at)):
        return True
    return is_among(SOFTWARE, _low(words, at + 1)) or (
        _low(words, at - 1) == "on" and is_among(RUNS, _low(words, at - 2))
    )


def _is_numbered(words: Sequence[str], at: int) -> bool:
    """Return whether a number belongs to it: a version, or a day where the word may be a month."""
    if is_among(ALSO_MONTHS, _low(words, at)) and _low(words, at - 1).isdigit():
        return True
    return _low(words, at + 1)[:1].isdigit() and not is_among(UNITS, _low(words, at + 2))


def _is_placed(words: Sequence[str], at: int, language: Language) -> bool:
    """Return whether it is a place, a noun of a language that capitalises them, or says which of a kind it is."""
    before, after = _low(words, at - 1), _low(words, at + 1)
    if is_among(f"{language.within} {language.before_nouns}", before):
        return True
    is_a_kind = is_among(language.subjects, after)
    return is_a_kind and (is_among(ARTICLES, before) or not is_among(ALSO_VERBS, after))


def _low(words: Sequence[str], at: int) -> str:
    """Return a word in small letters; empty before the first and behind the last."""
    return words[at].casefold() if 0 <= at < len(words) else ""
