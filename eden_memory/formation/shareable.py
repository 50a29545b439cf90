"""Checks of a statement that others may come to see, which no model's judgement can pass. Pure.

They look for what identifies a person: contact data, numbers of accounts, cards and identity papers, and names of
people who are known. In doubt they protect the person: a part number that reads like a telephone number is one.
"""

import re
from collections.abc import Iterable, Set

from phonenumbers import Leniency, PhoneNumberMatcher
from stdnum import iban
from stdnum.br import cpf
from stdnum.cn import ric
from stdnum.de import idnr
from stdnum.dk import cpr
from stdnum.es import dni, nie
from stdnum.exceptions import ValidationError
from stdnum.fi import hetu
from stdnum.fr import nir
from stdnum.it import codicefiscale
from stdnum.mx import curp
from stdnum.no import fodselsnummer
from stdnum.pl import pesel
from stdnum.se import personnummer
from stdnum.us import ssn

from eden_memory.redaction import has_check_digit

_LOCAL = r"[^\s@<>()\[\],;:]"
_EMAIL = re.compile(rf"(?<!{_LOCAL}){_LOCAL}+(?:@|\s?[(\[]at[)\]]\s?)[\w-]+(?:\.[\w-]+)+", re.IGNORECASE)
_CALLED = r"(?:phone|telephone|tel|cell|mobile|fax|whatsapp|call|text|ring|reach|handy|telefon|mobil|móvil)"
_PHONES = (
    re.compile(r"(?a:(?<![\w.,]))(?:00[1-9]|0[1-9])(?:[ .\-/()\u00a0\u2011]{0,2}\d){6,12}(?a:(?!\w))"),
    re.compile(r"(?a:(?<![\w.,-]))\(?[2-9]\d{2}\)?[ .-]\d{3}[ .-]\d{4}(?a:(?![\w-]))"),
    re.compile(rf"\b{_CALLED}\b\D{{0,25}}\d(?:[ .\-/()]{{0,2}}\d){{5,14}}(?!\w)", re.IGNORECASE),
)
"""National numbers, which a library knows only by country: with a trunk prefix, as in North America, or named."""
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
    re.compile(r"[都道府県市区町村]\S{0,12}\d+(?:丁目|番地?|-\d+-\d+)|[路街道巷]\s?\d+\s?[号號]"),
)
_NUMBERS = (
    re.compile(r"(?a:(?<![\w.]))\d(?:[ ./+-]?\d){8,18}(?a:(?!\w))"),
    re.compile(r"(?a:(?<![\w.]))(?=[A-Z-]*\d)[A-Z\d](?:[+-]?[A-Z\d]){7,20}(?a:(?!\w))"),
)
"""Digits, also in groups; and digits and capitals together."""
_IBAN_BEGINS = re.compile(r"(?a:\b)[A-Z]{2}\d{2}(?:[ -]?[A-Z0-9]){11,30}", re.ASCII)
_IDENTITY = (
    ssn,
    personnummer,
    fodselsnummer,
    cpr,
    hetu,
    dni,
    nie,
    nir,
    codicefiscale,
    idnr,
    pesel,
    cpf,
    ric,
    curp,
)
"""Identity numbers whose form or check digits leave little room for another number."""
_NUMBERED = re.compile(
    r"\b(?:account|acct|iban|sort code|routing|card|credit card|debit card|passport|licen[cs]e|social security"
    r"|ssn|national id|identity card|id card|id number|personal number|personnummer|tax id|tax number|insurance"
    r"|national insurance|patient|medical record|kontonummer|konto|steuernummer|cpr|nif|dni|cuenta|tarjeta|pasaporte"
    r"|compte|passeport|conta|cartão|passaporte|reisepass|ausweis|numer konta|pesel)"
    r"\b\D{0,25}(?:[A-Z]{0,3}\d[\dA-Z]*[ -]?){1,6}",
    re.IGNORECASE,
)
_NATIONAL_INSURANCE = re.compile(r"\b[A-CEGHJ-PR-TW-Z]{2} ?\d{2} ?\d{2} ?\d{2} ?[A-D]\b", re.ASCII)
NUMBERED_DIGITS = 5
_WORD = re.compile(r"[^\W_]+(?:[-_.&/]+[^\W_]+)*")


def is_personal(text: str) -> bool:
    """Return whether a text holds an e-mail or postal address, a telephone, account, card or identity number."""
    return (
        _EMAIL.search(text) is not None
        or _has_phone(text)
        or any(pattern.search(text) for pattern in (*_ADDRESSES, _NATIONAL_INSURANCE))
        or any(sum(map(str.isdigit, match.group())) >= NUMBERED_DIGITS for match in _NUMBERED.finditer(text))
        or any(_is_iban(match.group()) for match in _IBAN_BEGINS.finditer(text))
        or any(_identifies(match.group()) for form in _NUMBERS for match in form.finditer(text))
    )


def names_one_of(text: str, names: Iterable[str]) -> bool:
    """Return whether a text names one of these people, by any part of the name.

    A part of two letters counts where a capital shows that it is meant as a name. In scripts without capitals, which
    often part words by no spaces, a part counts wherever it stands, and so do its first and its last two letters.
    """
    words = re.findall(r"\w+", text)
    low, inner = {word.casefold() for word in words}, set(words[1:])
    return any(
        _named(part, text, low, inner) for name in names for part in re.findall(r"\w+", name) if len(part) > 1
    )


def _named(part: str, text: str, low: Set[str], inner: Set[str]) -> bool:
    if part.lower() == part.upper():
        return part.isalpha() and (part[:2] in text or part[-2:] in text)
    return part.casefold() in low if len(part) > 2 else part[0].isupper() and part in inner


def contradicts(text: str, given: str) -> bool:
    """Return whether a text says what a given one does, with other numbers or the other way round."""
    if text.casefold() == given.casefold() or not (adds_little(text, given) or adds_little(given, text)):
        return False
    return _numbers(text) != _numbers(given) or bool(_NOT.search(text)) != bool(_NOT.search(given))


def adds_little(text: str, source: str) -> bool:
    """Return whether at least two thirds of a text's words are of the source, by their beginnings."""
    return mostly_in(beginnings(text), beginnings(source))


def mostly_in(wanted: Set[str], source: Set[str]) -> bool:
    """Return whether at least two thirds of the beginnings of words are of the source."""
    return len(wanted & source) * 3 >= len(wanted) * 2


_NOT = re.compile(
    r"\b(?:not|no|never|nobody|cannot|\w+n't|nicht|kein\w*|nie|niemand|nunca|nadie|ne|pas|jamais|não|niet|geen|nie)\b",
    re.IGNORECASE,
)


def _numbers(text: str) -> set[str]:
    return {re.sub(r"[.,\s]", "", number) for number in re.findall(r"\d[\d.,]*", text)}


def beginnings(text: str) -> set[str]:
    """Return how the words of a text begin, without short ones."""
    return {word.casefold()[:5] for word in _WORD.findall(text) if len(word) > 3}


def _has_phone(text: str) -> bool:
    if sum(character.isdigit() for character in text) < 7:
        return False
    dateless = _DATE.sub(" ", text)
    if any(pattern.search(dateless) for pattern in _PHONES):
        return True
    return (
        "+" in text
        and PhoneNumberMatcher(re.sub(r"\+\s+", "+", dateless), None, Leniency.POSSIBLE).has_next()
    )


def _is_iban(text: str) -> bool:
    """Tell whether a bank account's number begins a text: what follows it may be of the next words."""
    plain = re.sub(r"[ -]", "", text)
    return any(iban.is_valid(plain[:end]) for end in range(15, min(len(plain), 34) + 1))


def _identifies(text: str) -> bool:
    """Tell whether a number is one of a card or of an identity paper."""
    digits = sum(map(str.isdigit, text))
    if digits >= 12 and text.replace(" ", "").replace("-", "").isdigit() and has_check_digit(text):
        return True
    return digits >= 7 and any(_is_valid(number, text) for number in _IDENTITY)


def _is_valid(number: object, text: str) -> bool:
    try:
        return bool(number.validate(text))  # type: ignore[attr-defined]
    except (ValidationError, ValueError):
        return False
