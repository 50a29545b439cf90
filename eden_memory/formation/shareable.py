"""Rules for statements that others may see: no personal data, and for all users only what is about nobody. Pure.

Patterns of personal data err on the side of the person: a part number like a telephone number counts as one.
For an agent's scope a model proposes, and this judges by the statement's own words. Without proof it is no agent's: a
language that has no list, a word that may be a name, and a sentence that leans on its neighbours are turned down.
It can err: a name in small letters that nobody in the session bears is not seen.
"""

import re
from collections.abc import Iterable, Sequence, Set

from eden_memory.formation.person_names import may_be_a_name
from eden_memory.formation.plain_languages import (
    LANGUAGES,
    ORDERS,
    PRIVATE_LIFE,
    TOLD_TO_ALL,
    Language,
    has_any,
    is_among,
)
from eden_memory.redaction import has_check_digit

_LOCAL = r"[^\s@<>()\[\],;:]"
_EMAIL = re.compile(rf"(?<!{_LOCAL}){_LOCAL}+(?:@|\s?[(\[]at[)\]]\s?)[\w-]+(?:\.[\w-]+)+", re.IGNORECASE)
_CALLED = r"(?:phone|telephone|tel|cell|mobile|fax|whatsapp|call|text|ring|reach|handy|telefon|mobil|móvil)"
_PHONES = (
    re.compile(r"(?a:(?<![\w.]))\+\s?\d(?:[ .\-/()\u00a0\u2011]{0,2}\d){6,14}(?a:(?!\w))"),
    re.compile(r"(?a:(?<![\w.,]))(?:00[1-9]|0[1-9])(?:[ .\-/()\u00a0\u2011]{0,2}\d){6,12}(?a:(?!\w))"),
    re.compile(r"(?a:(?<![\w.,-]))\(?[2-9]\d{2}\)?[ .-]\d{3}[ .-]\d{4}(?a:(?![\w-]))"),
    re.compile(rf"\b{_CALLED}\b\D{{0,25}}\d(?:[ .\-/()]{{0,2}}\d){{5,14}}(?!\w)", re.IGNORECASE),
)
_DATE = re.compile(r"\b(?:\d{4}[-./]\d{1,2}[-./]\d{1,2}|\d{1,2}[-./]\d{1,2}[-./]\d{4})\b(?:[T ]\d{2}:\d{2})?")
_KIND_OF_STREET = (
    r"(?:street|st|road|rd|avenue|ave|lane|ln|drive|dr|boulevard|blvd|court|ct|place|pl|square|sq|terrace"
    r"|crescent|close|way|parkway|pkwy|highway|hwy)"
)
_ADDRESSES = (
    re.compile(rf"\b\d+[a-zA-Z]?,?\s+(?:[A-Z][\w'’.-]*\s+){{1,4}}(?i:{_KIND_OF_STREET})\b"),  # noqa: RUF001
    re.compile(
        r"\b\w{4,}(?:gatan|gata|vägen|väg|gränd|stigen|torget|straße|strasse|str\.|gasse|allee|platz|weg|straat"
        r"|laan|plein|gracht|gade|vej|veien|katu|tie)\s+\d+",
        re.IGNORECASE,
    ),
    re.compile(
        r"\b(?:rue|avenue|boulevard|via|viale|piazza|corso|calle|avenida|plaza|paseo|rua|travessa|praça|ulica|ul\.)"
        r"\s+(?:[\w'’.-]+,?\s+){1,5}\d+\b",  # noqa: RUF001
        re.IGNORECASE,
    ),
    re.compile(r"\b\d+[a-z]?,?\s+(?:bis\s+|ter\s+)?(?:rue|avenue|boulevard|place|quai)\s+\w+", re.IGNORECASE),
    re.compile(r"\b(?:p\.?\s?o\.?\s?box|postfach|postbox)\s+\d+", re.IGNORECASE),
    re.compile(r"\b(?:lives?|living|resides?)\s+(?:at|on|in)\s+(?:[A-Z][\w'’.-]*,?\s+){1,4}\d{1,5}\b"),  # noqa: RUF001
    re.compile(
        r"\b(?:(?:home|street|postal|mailing|delivery)\s+address\b|address\s*(?:is|:))\D{0,40}\d",
        re.IGNORECASE,
    ),
)
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?:[ -]?[A-Z0-9]){11,30}\b", re.ASCII)
_LONG_NUMBER = re.compile(r"(?a:(?<![\w.]))\d(?:[ -]?\d){11,18}(?a:(?!\w))")
_NUMBERED = re.compile(
    r"\b(?:account|acct|iban|sort code|routing|card|credit card|debit card|passport|licen[cs]e|social security"
    r"|ssn|national id|identity card|id card|id number|personal number|personnummer|tax id|tax number|insurance"
    r"|national insurance|patient|medical record|kontonummer|konto|steuernummer|cpr|nif|dni)"
    r"\b\D{0,25}(?:[A-Z]{0,3}\d[\dA-Z]*[ -]?){1,6}",
    re.IGNORECASE,
)
_IDENTIFIERS = (
    re.compile(r"(?<![\w-])\d{3}-\d{2}-\d{4}(?![\w-])", re.ASCII),  # US social security number
    re.compile(r"(?<![\w-])(?:19|20)?\d{6}[-+]\d{4}(?![\w-])", re.ASCII),  # Nordic personal number
    re.compile(r"\b[A-CEGHJ-PR-TW-Z]{2} ?\d{2} ?\d{2} ?\d{2} ?[A-D]\b", re.ASCII),  # UK national insurance
)
NUMBERED_DIGITS = 5


def is_personal(text: str) -> bool:
    """Return whether a text holds an e-mail or postal address, a telephone, account or identity number."""
    return (
        _EMAIL.search(text) is not None
        or _has_phone(text)
        or any(pattern.search(text) for pattern in (*_ADDRESSES, *_IDENTIFIERS))
        or any(sum(map(str.isdigit, match.group())) >= NUMBERED_DIGITS for match in _NUMBERED.finditer(text))
        or any(_is_iban(match.group()) for match in _IBAN.finditer(text))
        or any(has_check_digit(match.group()) for match in _LONG_NUMBER.finditer(text))
    )


def names_one_of(text: str, names: Iterable[str]) -> bool:
    """Return whether a text names one of these people, by any part of the name with at least three letters."""
    words = {word.casefold() for word in re.findall(r"\w+", text)}
    return any(
        part.casefold() in words for name in names for part in re.findall(r"\w+", name) if len(part) >= 3
    )


def _has_phone(text: str) -> bool:
    dateless = _DATE.sub(" ", text)
    return any(pattern.search(dateless) for pattern in _PHONES)


def _is_iban(text: str) -> bool:
    """Check a bank account number by its check digits (ISO 13616): the remainder by 97 is 1."""
    plain = re.sub(r"[ -]", "", text)
    ends = range(15, min(len(plain), 34) + 1)
    return any(int("".join(str(int(c, 36)) for c in plain[4:end] + plain[:4])) % 97 == 1 for end in ends)


_WORD = re.compile(r"[^\W_]+(?:[-_.&/]+[^\W_]+)*")
_ENDS = re.compile(r"(?<=[.!?;:])\s+|\n+")
_SUBJECT_WITHIN = 4
"""Words at a sentence's beginning, among which what it is about must stand."""
_TOLD = re.compile(TOLD_TO_ALL)


def is_agent_wide(
    text: str,
    names: Iterable[str],
    said: Sequence[str] = (),
    *,
    vouched: bool = False,
    subject: str = "",
) -> bool:
    """Return whether a statement holds for whoever talks to the agent, and tells of nobody.

    `names`: what those who take part are called. `said`: the texts that it rests on; where one of them states it as
    a rule for all, it need not say itself what it is about; nor where it is `vouched` for: where no user's words can
    be behind it, or somebody decided what such a place collects. Words of this `subject` are no names.
    """
    if is_personal(text) or names_one_of(text, names) or text.isupper() or _holds(PRIVATE_LIFE, text):
        return False
    sentences = [sentence for sentence in _ENDS.split(text) if _WORD.search(sentence)]
    nouns = _stems(subject)
    return bool(sentences) and all(_is_proven(sentence, said, vouched, nouns) for sentence in sentences)


def restates(text: str, source: str, names: Iterable[str]) -> bool:
    """Return whether a text is agent-wide and says what its source says, about none of those whom that names.

    What the source's own language tells of persons counts in the text too, whatever language that begins in, and
    so does a name of the source in small letters.
    """
    named, told = set(names), [word.casefold() for word in _WORD.findall(text)]
    for words in map(_WORD.findall, _ENDS.split(source)):
        spoken = [language for language in LANGUAGES if words and _opens(words[0].casefold(), language)]
        if any(has_any(language.persons, told) for language in spoken):
            return False
        named.update(
            word
            for at, word in enumerate(words)
            if all(may_be_a_name(words, at, language) for language in spoken or LANGUAGES)
        )
    return is_agent_wide(text, named) and adds_little(text, source)


def _opens(word: str, language: Language) -> bool:
    """Return whether a word, in small letters, may begin a sentence of this language that stands alone."""
    return is_among(f"{language.openers} {language.subjects} {language.everybody}", word)


def adds_little(text: str, source: str) -> bool:
    """Return whether at least two thirds of a text's words are of the source, by their beginnings."""
    wanted = _stems(text)
    return len(wanted & _stems(source)) * 3 >= len(wanted) * 2


def _is_proven(sentence: str, said: Sequence[str], vouched: bool, nouns: Set[str]) -> bool:
    """Return whether it is about an organisation, or known to be for all, stands alone and names nobody.

    By every language that its first word is of; where that is of none (`Postgres 17`), names are told by any.
    """
    words = _WORD.findall(sentence)
    low = [word.casefold() for word in words]
    told = _told_to_all(sentence, said)
    if sentence[:1].islower() or (is_among(ORDERS, low[0]) and not told):
        return False
    fitting = [
        language
        for language in LANGUAGES
        if told or vouched or _is_about_an_organisation(words, low, language)
    ]
    opened = [language for language in fitting if _opens(low[0], language)]
    names = [
        any(
            may_be_a_name(words, at, language)
            for at, word in enumerate(words)
            if word.casefold()[:5] not in nouns
        )
        for language in opened or fitting
    ]
    tells_of_nobody = not any(names) if opened else not all(names)
    return tells_of_nobody and not any(_leans(low, language) for language in opened or LANGUAGES)


def _is_about_an_organisation(words: Sequence[str], low: Sequence[str], language: Language) -> bool:
    """Return whether the subject belongs to an organisation, or is everybody there who must or may."""
    begins = low[:_SUBJECT_WITHIN]
    if has_any(language.everybody, begins) and has_any(language.obliged, low):
        return has_any(language.subjects, low)
    at = next((at for at, word in enumerate(begins) if is_among(language.subjects, word)), None)
    if at is None or at + 1 == len(low):
        return False
    behind = low[at + 1]
    if is_among(language.joins, behind):
        in_a_place = is_among(language.within, behind) and words[at + 2 : at + 3] != low[at + 2 : at + 3]
        return in_a_place or has_any(language.subjects, low[at + 2 : at + 5])
    is_plural = low[at].endswith("s")
    return is_plural or not language.follows or is_among(f"{language.follows} {language.subjects}", behind)


def _leans(low: Sequence[str], language: Language) -> bool:
    """Return whether a pronoun, or the sentences around, must say whom or what it is about."""
    return has_any(language.persons, low) or has_any(language.vague, low[1:2])


def _told_to_all(sentence: str, said: Sequence[str]) -> bool:
    """Return whether a sentence of a source says that it is for all, and holds most words of this one."""
    return any(
        _TOLD.search(rule) is not None and adds_little(sentence, rule)
        for text in said
        for rule in re.split(r"(?<=[.!?])\s+|\n+", text.casefold())
    )


def _stems(text: str) -> set[str]:
    return {word.casefold()[:5] for word in _WORD.findall(text) if len(word) > 3}


def _holds(words: str, text: str) -> bool:
    return has_any(words, [word.casefold() for word in _WORD.findall(text)])
