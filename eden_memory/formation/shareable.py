"""Checks of a statement that others may come to see, which no model's judgement can pass. Pure.

They look for what identifies a person: contact data, numbers of accounts, cards and identity papers, and names of
people who are known. In doubt they protect the person: a part number that reads like a telephone number is one.

They also look for planted texts, by patterns of published attacks: MINJA (a user's queries make an agent remember to
take one thing for another), indirect injection (orders in a tool's output), and spoofed instructions that write to an
assistant's memory. What looks planted stays with its author; what only a tool says is dropped. They know English
alone; the setting by role knows no language. What an operator adds without a user is trusted.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import NamedTuple

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

from eden_memory.formation.prompt_material import TranscriptLine
from eden_memory.formation.transcript import Transcript
from eden_memory.redaction import has_check_digit
from eden_memory.schemas.provenance import SourceMessage

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


_GAP = r"[^.!?\n]{0,80}?"
_RULES = r"(?:instructions?|rules?|prompts?|guidelines?|polic(?:y|ies)|directives?)"
_WHOSE = r"(?:your|the|its|my|long[- ]term|(?:the )?agent'?s?|system|permanent|persistent)"
_OTHERS = r"(?:users?|customers?|clients?|patients?|anyone|anybody|everyone|everybody|someone|somebody)"
_TALKS = r"(?:sessions?|conversations?|chats?|queries|requests?)"
_BY_USERS = (
    rf"\b(?:ignore|disregard|override|bypass|forget)\b{_GAP}"
    rf"\b(?:previous|prior|above|earlier|your|system)\b{_GAP}\b{_RULES}\b",
    rf"\b(?:save|store|write|add|put|persist|commit|append|insert|update|overwrite)\b{_GAP}"
    rf"\b{_WHOSE}\s+(?:\w+[- ]){{0,2}}(?:memory|memories|knowledge base)\b",
    rf"\b(?:memori[sz]e|remember|note|keep in mind)\b{_GAP}\b(?:for|in|with|across|to)\s+"
    rf"(?:all|every|each|any|other)\s+(?:future\s+|other\s+)?(?:{_OTHERS}|{_TALKS})\b",
    r"\b(?:refer(?:red|s)?|redirect(?:ed|s)?|replaced?|substituted?|swap(?:ped)?|quer(?:y|ied)|retrieved?)"
    rf"\b{_GAP}\b(?:instead(?: of)?|in place of|rather than|in lieu of|with that of)\b",
    rf"\b(?:data|records?|information|file|entry|entries|account)\b{_GAP}\b(?:of|for)\b{_GAP}"
    r"\b(?:is|are|was|were)\s+(?:now\s+)?(?:saved|stored|kept|moved|listed|held)\s+(?:under|with|as)\b",
    r"\b(?:do not|don'?t|never|without)\s+(?:tell|mention|inform|reveal|alert|disclos)(?:e|ing|ling)?\b"
    rf"{_GAP}\b(?:the|any|other)\s+{_OTHERS}\b",
)
_SPOOFED = (
    r"^\W{0,4}(?:system|developer|admin(?:istrator)?)\s+"
    r"(?:message|prompt|note|override|update|instructions?|notice)\W{0,3}:",
    r"<\s*/?\s*(?:system|instructions?|im_start|im_end)\b|\[/?INST\]|<\|(?:im_start|im_end|system)\|>",
    r"\b(?:important|new|hidden|special|critical|updated)\s+(?:system\s+)?instructions?\s+(?:for|to)\s+"
    r"(?:the\s+|any\s+|all\s+)?(?:ai|assistants?|agents?|models?|llms?|bots?)\b",
)
_BY_TOOLS = (
    rf"\b(?:ignore|disregard|override|bypass)\b{_GAP}\b{_RULES}\b",
    rf"\b(?:when(?:ever)?|if|every time|any time|each time|once)\b{_GAP}\b(?:the\s+)?{_OTHERS}\b{_GAP}"
    r"\b(?:asks?|requests?|wants?|mentions?|says?)\b",
    rf"\b(?:from now on|going forward|in all future|always|in (?:any|every) (?:answer|reply))\b{_GAP}"
    r"\b(?:use|recommend|answer|respond|reply|send|refer|return|say|suggest|select|include|prefer|trust)\b",
    r"\b(?:ai|assistants?|agents?|bots?|language models?|you)\s+(?:must|shall|should|are to|need to)\b",
    rf"\b(?:send|forward|post|upload|transmit|append|include)\b{_GAP}"
    rf"\b(?:conversation|chat|history|messages|passwords?|credentials?|tokens?|data|details)\b{_GAP}"
    r"(?:https?://|\bto\s+\S+@)",
    r"\b(?:remember|memori[sz]e|note|store|save)\s+(?:that|this|the following)\b",
)


def _any_of(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE | re.MULTILINE)


_USERS, _TOOLS = _any_of(*_BY_USERS, *_SPOOFED), _any_of(*_BY_USERS, *_SPOOFED, *_BY_TOOLS)


class Provenance(NamedTuple):
    """Limits that follow from a statement's messages: `shared` beyond their users, or `dropped` altogether."""

    shared: bool
    dropped: bool
    planted: bool = False
    """Whether it rests on a message that looks planted."""


def is_planted(text: str, *, by_tool: bool = False) -> bool:
    """Return whether a text tells an agent what to take for what, to keep or to hide, or poses as its operator.

    `by_tool`: any order counts, because a tool has none to give.
    """
    return (_TOOLS if by_tool else _USERS).search(text) is not None


def planted_messages(transcript: Transcript, *, has_users: bool) -> Iterator[str]:
    """Yield the messages of users and tools that look planted, and the agent's answers to them.

    `has_users`: users take part; where none does, only tools are not trusted.
    """
    planted = False
    for name, line in _lines(transcript):
        if line.role == "tool":
            planted = is_planted(line.text, by_tool=True)
        elif line.role != "assistant":
            planted = has_users and line.role != "system" and is_planted(line.text)
        if planted:
            yield name


def provenance_of(
    text: str,
    transcript: Transcript,
    sources: tuple[SourceMessage, ...],
    roles: Set[str],
    planted: Set[str],
) -> Provenance:
    """Return what a statement's messages allow; `roles`: those whose messages may form memory that others see.

    A statement that says what only a message of another role says rests on that message, whatever a model names.
    `planted`: the messages that look planted.
    """
    cited = {source.message_id for source in sources}
    lines = dict(_lines(transcript))
    own = [line for name, line in lines.items() if name in cited]
    borrowed = _borrowed(text, " ".join(line.text for line in own if line.role in roles), lines, roles)
    rests_on_planted = not planted.isdisjoint(cited | borrowed)
    users_own = not borrowed and any(line.role == "user" for line in own)
    return Provenance(
        shared=not rests_on_planted and not borrowed and all(line.role in roles for line in own),
        dropped=rests_on_planted and not users_own and any(line.role == "tool" for line in lines.values()),
        planted=rests_on_planted,
    )


def _borrowed(text: str, said: str, lines: Mapping[str, TranscriptLine], roles: Set[str]) -> set[str]:
    """Return the messages of other roles whose words a text repeats, where its own messages do not say them."""
    if adds_little(text, said):
        return set()
    return {name for name, line in lines.items() if line.role not in roles and adds_little(text, line.text)}


def _lines(transcript: Transcript) -> Iterator[tuple[str, TranscriptLine]]:
    for source, line in zip(transcript.sources, transcript.lines, strict=True):
        yield source.message_id, line
