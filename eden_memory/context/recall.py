"""Decide by rules, without a model, whether a message asks about the past. English. Pure."""

import re

QUERY_CHARACTERS = 500
UNKNOWN_NAMES = 2
READ_CHARACTERS = 2_000
"""Of the beginning of a message, and of its end: what is pasted between them asks nothing, and would cost time."""

_PHRASES = re.compile(
    r"\b(remember (when|that|the|how|what|my|our|i|we)|do you (remember|recall)|remind me|"
    r"what (did|have|had) (i|we|you)\b.{0,100}\b(say|said|tell|told|mention|mentioned|decide|decided|agree|agreed)|"
    r"(as|like) (i|we|you) (said|told|mentioned|discussed|agreed)|"
    r"did (i|we) (ever )?(say|tell|mention|talk|discuss|decide|agree)|"
    r"(we|i|you) (talked|spoke) about|last time|the other day|back then|previously)\b",
    re.IGNORECASE,
)
_QUESTION = re.compile(
    r"\b(who|whom|whose|what|when|where|which|why|how)\b(?P<rest>[^.?!\n]*)", re.IGNORECASE
)
_PAST = re.compile(
    r"\b(was|were|did|didn't|had|wasn't|weren't|said|told|went|came|made|met|got|gave|took|wrote|bought|sold|"
    r"chose|found|left|began|ran|saw|thought|knew|kept|sent|spent|built|paid|held|became|brought|"
    r"[a-z]{2,}[^aeiou\W]ed|[a-z]+[iou]ed)\b",
    re.IGNORECASE,
)
_NAME = re.compile(r"(?<![.?!:\n] )(?<![.?!\n])(?<=[\w,;'\")] )[A-Z][\w'-]+")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October")
_OTHERS = ("November", "December", "I'm", "I'll", "I've", "I'd", "English", "OK")
_NO_NAMES = frozenset((*_DAYS, *_MONTHS, *_OTHERS))


def asks_for_past(message: str, known: str) -> bool:
    """Return whether a message asks about the past; `known` is the context's text."""
    message = _read(message)
    return (
        _PHRASES.search(message) is not None
        or any(_PAST.search(found["rest"]) for found in _QUESTION.finditer(message))
        or len(unknown_names(message, known)) >= UNKNOWN_NAMES
    )


def unknown_names(message: str, known: str) -> set[str]:
    """Return capitalised words inside sentences that the context does not contain."""
    names = {found.group().removesuffix("'s") for found in _NAME.finditer(message)}
    lowered = known.casefold()
    return {name for name in names - _NO_NAMES if name.casefold() not in lowered}


def _read(message: str) -> str:
    if len(message) <= 2 * READ_CHARACTERS:
        return message
    return f"{message[:READ_CHARACTERS]}\n{message[-READ_CHARACTERS:]}"


def query_of(message: str) -> str:
    """Return the query to search for: the message, or the end of a long one."""
    return " ".join(message.split())[-QUERY_CHARACTERS:]
