"""Sentences: their words and values, their clauses, and whether a clause stands alone as a statement."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal

import yaml

_SHORT = (
    r"(?<!\b(?:Dr|Mr|Ms|St|vs|ca)\.)(?<!\b(?:Mrs|e\.g|i\.e)\.)(?<!\bapprox\.)"
    r"(?:(?<!\b[A-Z]\.)|(?=\s+(?:So|But|And|The|I|It|She|He|We|They|My)\b))"
)
_ENDS = re.compile(_SHORT + r"(?:(?<=[.!?…])|(?<=[.!?…][\"'”)]))\s+(?=[^\sa-z])|\n+")
_CODE = re.compile(r"```.*?(?:```|\Z)|^>.*$", re.DOTALL | re.MULTILINE)
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
    return re.compile(template, re.IGNORECASE)


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
    days = english()["days"]
    common = {*english()["stop"], *english()["months"], *days, *(f"{day}s" for day in days)}
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


Kind = Literal["fact", "rule", "way", "context", "nothing"]
"""Context is kept only beside a statement that needs it."""
_OWN = re.compile(r"\b(?:I|[Mm]e|[Mm]y|[Mm]ine|[Mm]yself)\b")


def kind_of(sentence: str, lead: str, speakers: frozenset[str], named: frozenset[str]) -> Kind:
    """Classify a sentence behind its `lead` (`One rule for you:`); `named` are the conversation's names."""
    asks = sentence.rstrip("\"') ").endswith("?") or pattern("^{asks}(?!.*,)").match(sentence)
    if asks or says(sentence, "never"):
        return "nothing"
    ruling = says(sentence, "rule") or pattern("^{everybody}.*{obliged}").match(sentence)
    if (ruling and not _OWN.search(sentence)) or pattern(r"\b(?:rules?|polic(?:y|ies))\b").search(lead):
        return "rule"
    meaning = content(sentence) - content(" ".join(speakers))
    order = pattern("^(?:(?:please|just|kindly) )*{order}").match(sentence)
    if says(sentence, "way") or (order and says(sentence, "lasting")):
        return "way" if meaning and (len(meaning) > 1 or _OWN.search(sentence)) else "nothing"
    passing = says(sentence, "passing") and not says(sentence, "event")
    if passing or order or re.search(r"\byou(?:r|rs)?\b", sentence, re.IGNORECASE):
        return "nothing"
    specific = named & set(re.findall(r"[\w-]+", sentence)) or numbers(sentence) or dates(sentence)
    lasts = says(sentence, "lasts") or pattern(r"\b(?:i|we) {did}.*{ago}|{ago},? (?:i|we)\b").search(sentence)
    named_so = meaning and says(sentence, "naming")
    return "fact" if named_so or (len(meaning) > 1 and (specific or lasts)) else "context"


def personal(clause: str, said: str) -> int:
    """Tell whose a clause is.

    2: its speaker's own life, or somebody's health, family or address; 0: `said` for all, and it names no person;
    1: anything else.
    """
    if _OWN.search(clause) or says(clause, "personal"):
        return 2
    return int(not says(said, "shared") or bool(pattern("{person}").search(clause)))


_NAME = r"(?-i:[A-Z])[\w.-]+(?: (?-i:[A-Z])[\w-]+)*"
_SPLIT = (
    r"(?:[,;] (?:(?:and|but|because|so) )?| (?:and|but) )"
    r"(?=(?:(?:most|some|every) \w+ )?(?:I|he|she|it|they|we)(?:'\w+)? |(?:his|hers|theirs) is )"
    r"|, (?:and )?(?=(?:ask|bring|tell|please|whatever|everybody|nobody|there)\b|the (?:\w+ ){1,3}(?:is|are) )"
    r"|, so (?!that)"
)
_CALLED = rf"^(?:she|he|it) is called ({_NAME}), (?=an? )"
_ROLE = rf", (?:the )?(owner|builder|author|manager|landlord|teacher|captain) is (?={_NAME})"


def clauses(sentence: str) -> Iterator[str]:
    """Yield the clauses of a sentence, without who reports it and without what only fills it."""
    named = pattern(_CALLED).sub(lambda m: f"{m[1]} is ", sentence)
    named = pattern(rf"^({_NAME}) is the (?:one|person) who ").sub(r"\1 ", named)
    named = pattern(rf"^{_NAME} (?:wrote|writes|said|says): ?").sub("", named)
    named = pattern(
        r" here(?: now)?(?=[,.!]|$)|,? (?:also|too|though|finally|lol|haha|tbh|btw|by the way)(?=[,.!]|$)| of us\b"
        r"|,? [-\u2013\u2014]+ (?:(?:it|that|this)(?:'s| is| was| has)|such an?|so) [^-\u2013\u2014]*$"
    ).sub("", named)
    named = re.sub(r"\bthat (?=(?:pic|photo|picture)\b)", "a ", named)
    return (clause[0].upper() + clause[1:] for clause in _pieces(named))


def _pieces(sentence: str) -> Iterator[str]:
    if pattern("^(?:when|if) ").match(sentence) and not pattern("^if [^,]*, (?:my|the|i)").match(sentence):
        yield sentence
        return
    head, *roles = pattern(_ROLE).split(sentence)
    yield from _cut(head)
    name = re.match(_NAME.replace("(?-i:", "(?:"), head)
    for role, holder in zip(roles[::2], roles[1::2], strict=True):
        if name:
            yield f"{name[0]}'s {role} is {holder}"


def _cut(sentence: str) -> Iterator[str]:
    """Split where a new subject begins, unless the part before it has no verb: `Last Friday, I left`."""
    start = 0
    for found in pattern(_SPLIT).finditer(sentence):
        if says(sentence[start : found.start()], "verb"):
            yield sentence[start : found.start()].strip(" ,;")
            start = found.end()
    if sentence[start:].strip(" .,;!"):
        yield sentence[start:].strip(" ,;")


def _unexplained(text: str) -> bool:
    """Return whether a pronoun stands so early that nothing in the clause can be what it means."""
    found = pattern("{pronoun}").search(text)
    return found is not None and len(text[: found.start()].split()) < 6


def complete(text: str, kind: Kind, *, first: bool) -> bool:
    """Return whether a clause reads as a statement of its own: subject, verb, and nothing in it that points outside.

    `first`: whether it opens its message; a later one with a bare subject (`the course`) leans on the one before.
    """
    said = pattern("^if there is [^,]*, ").sub("", text)
    said = pattern("^our ").sub("the ", pattern("^we (?={changing})").sub("I ", said))
    if kind == "way":
        return not pattern("^(?:he|she|it|they|this|that)\\b|{vague}").search(said)
    if pattern("{outside}|{vague}").search(said) or _unexplained(said):
        return False
    if kind == "rule" and pattern("^(?:{order}|{everybody}|for )").match(said):
        return True
    if not first and pattern(r"^the [\w-]+ {finite}").match(said):
        return False
    opening = re.match(r"[\w-]+(?='s |[ ,])", said)
    is_name = bool(
        opening and content(opening[0]) and not (numbers(opening[0]) or says(opening[0], "months", "filler"))
    )
    name = _NAME + r"(?:'s [\w ]{2,30}?)?" if is_name else "(?!)"
    subject = rf"(?:my [\w' ]{{2,40}}?|the [\w' -]{{2,60}}?|{{everybody}}|{{plural}}|{{bare}}|{name})"
    rest = r"(?:I (?:{adverbs} )*[a-z]|" + subject + r",?(?: {adverbs})* {finite})"
    return bool(pattern(r"^(?:{intro},? )?" + rest).match(said))
