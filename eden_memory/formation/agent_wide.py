"""Rules for statements that all of an agent's users may see: only those that prove to be about nobody. Pure.

A model proposes; this judges by the statement's own words, whatever the model. Without proof it is no agent's: a
language that has no list, a word that may be a name, and a sentence that leans on its neighbours are turned down.
It can err: a name in small letters that nobody in the session bears is not seen.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache

from eden_memory.formation.demotion import is_personal, names_one_of
from eden_memory.formation.plain_languages import (
    CAPITALS,
    LANGUAGES,
    ORDERS,
    PRIVATE_LIFE,
    TITLES,
    TOLD_TO_ALL,
    Language,
)

_WORD = re.compile(r"[^\W_]+(?:[-_.&/]+[^\W_]+)*")
_ENDS = re.compile(r"(?<=[.!?;:])\s+|\n+")
_SUBJECT_WITHIN = 4
"""Words at a sentence's beginning, among which what it is about must stand."""
_TOLD = re.compile(TOLD_TO_ALL)
_INNER_CAPITAL = re.compile(r"(?!Mc|Mac|De|Di|La|Le)\w+[a-z][A-Z]")


def is_agent_wide(
    text: str, names: Iterable[str], said: Sequence[str] = (), *, vouched: bool = False
) -> bool:
    """Return whether a statement holds for whoever talks to the agent, and tells of nobody.

    `names`: what those who take part are called. `said`: the texts that it rests on; where one of them states it as
    a rule for all, it need not say itself what it is about; nor where it is `vouched` for: where no user's words can
    be behind it, or somebody decided what such a place collects.
    """
    if is_personal(text) or names_one_of(text, names) or text.isupper() or _holds(PRIVATE_LIFE, text):
        return False
    sentences = [sentence for sentence in _ENDS.split(text) if _WORD.search(sentence)]
    return bool(sentences) and all(_is_proven(sentence, said, vouched) for sentence in sentences)


def _is_proven(sentence: str, said: Sequence[str], vouched: bool) -> bool:
    """Return whether it is about an organisation, or known to be for all, stands alone and names nobody.

    By every language that its first word is of; where that is of none (`Postgres 17`), names are told by any.
    """
    words = _WORD.findall(sentence)
    low = [word.casefold() for word in words]
    told = _told_to_all(sentence, said)
    if sentence[:1].islower() or (_is(ORDERS, low[0]) and not told):
        return False
    fitting = [
        language
        for language in LANGUAGES
        if told or vouched or _is_about_an_organisation(words, low, language)
    ]
    opened = [
        language
        for language in fitting
        if _is(f"{language.openers} {language.subjects} {language.everybody}", low[0])
    ]
    names = [
        any(_may_be_a_name(words, at, language) for at in range(len(words))) for language in opened or fitting
    ]
    tells_of_nobody = not any(names) if opened else not all(names)
    return tells_of_nobody and not any(_leans(low, language) for language in opened or LANGUAGES)


def _is_about_an_organisation(words: Sequence[str], low: Sequence[str], language: Language) -> bool:
    """Return whether the subject belongs to an organisation, or is everybody there who must or may."""
    begins = low[:_SUBJECT_WITHIN]
    if _any(language.everybody, begins) and _any(language.obliged, low):
        return _any(language.subjects, low)
    at = next((at for at, word in enumerate(begins) if _is(language.subjects, word)), None)
    if at is None or at + 1 == len(low):
        return False
    behind = low[at + 1]
    if _is(language.joins, behind):
        in_a_place = _is(language.within, behind) and words[at + 2 : at + 3] != low[at + 2 : at + 3]
        return in_a_place or _any(language.subjects, low[at + 2 : at + 5])
    is_plural = low[at].endswith("s")
    return is_plural or not language.follows or _is(f"{language.follows} {language.subjects}", behind)


def _leans(low: Sequence[str], language: Language) -> bool:
    """Return whether a pronoun, or the sentences around, must say whom or what it is about."""
    return _any(language.persons, low) or _any(language.vague, low[1:2])


def _may_be_a_name(words: Sequence[str], at: int, language: Language) -> bool:
    """Return whether a word may be a person's name; in a script without capitals any word may."""
    word, low = words[at], words[at].casefold()
    if any(character.isalpha() and character.lower() == character.upper() for character in word) or _is(
        TITLES, low
    ):
        return True
    if not word[0].isupper() or _is(f"{language.subjects} {language.everybody} {CAPITALS}", low):
        return False
    before, after = (words[at - 1] if at else ""), (words[at + 1] if at + 1 < len(words) else "")
    if after == "s":
        return True
    if not at and _is(language.openers, low):
        return False
    is_technical = any(map(str.isdigit, word)) or (len(word) > 1 and word.isupper())
    is_of_one = after[:1].isdigit() or before[:1].isdigit() or _is(language.subjects, after.casefold())
    is_no_person = _is(f"{language.within} {language.before_nouns}", before.casefold())
    return not (is_technical or is_of_one or is_no_person or _INNER_CAPITAL.match(word))


def _told_to_all(sentence: str, said: Sequence[str]) -> bool:
    """Return whether a sentence of a source says that it is for all, and holds most words of this one."""
    wanted = _stems(sentence)
    return any(
        _TOLD.search(rule) is not None and len(wanted & _stems(rule)) * 3 >= len(wanted) * 2
        for text in said
        for rule in re.split(r"(?<=[.!?])\s+|\n+", text.casefold())
    )


def _stems(text: str) -> set[str]:
    return {word.casefold()[:5] for word in _WORD.findall(text) if len(word) > 3}


def _holds(words: str, text: str) -> bool:
    return _any(words, [word.casefold() for word in _WORD.findall(text)])


def _any(words: str, among: Iterable[str]) -> bool:
    return any(_is(words, word) or any(_is(words, part) for part in word.split("-")[1:]) for word in among)


def _is(words: str, word: str) -> bool:
    return _one_of(words).fullmatch(word) is not None


@cache
def _one_of(words: str) -> re.Pattern[str]:
    return re.compile("|".join(words.split()) or "(?!)")
