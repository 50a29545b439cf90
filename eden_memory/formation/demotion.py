"""Patterns of personal data, which no agent, group or shard may hold. Pure.

It errs on the side of the person: a part number that reads like a telephone number counts as one.
"""

import re
from collections.abc import Iterable

_LOCAL = r"[^\s@<>()\[\],;:]"
_EMAIL = re.compile(rf"(?<!{_LOCAL}){_LOCAL}+(?:@|\s?[(\[]at[)\]]\s?)[\w-]+(?:\.[\w-]+)+", re.IGNORECASE)
_CALLED = r"(?:phone|telephone|tel|cell|mobile|fax|whatsapp|call|text|ring|reach|handy|telefon|mobil|móvil)"
_PHONES = (
    re.compile(r"(?<![\w.])\+\s?\d(?:[ .\-/()\u00a0\u2011]{0,2}\d){6,14}(?!\w)"),
    re.compile(r"(?<![\w.,])(?:00[1-9]|0[1-9])(?:[ .\-/()\u00a0\u2011]{0,2}\d){6,12}(?![\w])"),
    re.compile(r"(?<![\w.,-])\(?[2-9]\d{2}\)?[ .-]\d{3}[ .-]\d{4}(?![\w-])"),
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
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?:[ -]?[A-Z0-9]){11,30}\b")
_LONG_NUMBER = re.compile(r"(?<![\w.])\d(?:[ -]?\d){11,18}(?!\w)")
_NUMBERED = re.compile(
    r"\b(?:account|acct|iban|sort code|routing|card|credit card|debit card|passport|licen[cs]e|social security"
    r"|ssn|national id|identity card|id card|id number|personal number|personnummer|tax id|tax number|insurance"
    r"|national insurance|patient|medical record|kontonummer|konto|steuernummer|cpr|nif|dni)"
    r"\b\D{0,25}(?:[A-Z]{0,3}\d[\dA-Z]*[ -]?){1,6}",
    re.IGNORECASE,
)
_IDENTIFIERS = (
    re.compile(r"(?<![\w-])\d{3}-\d{2}-\d{4}(?![\w-])"),  # US social security number
    re.compile(r"(?<![\w-])(?:19|20)?\d{6}[-+]\d{4}(?![\w-])"),  # Nordic personal number
    re.compile(r"\b[A-CEGHJ-PR-TW-Z]{2} ?\d{2} ?\d{2} ?\d{2} ?[A-D]\b"),  # UK national insurance
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
        or any(_is_card(match.group()) for match in _LONG_NUMBER.finditer(text))
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


def _is_card(text: str) -> bool:
    """Check a card number by its check digit (ISO/IEC 7812, Luhn)."""
    digits = [int(character) for character in text if character.isdigit()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return len(digits) >= 13 and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
