"""Decide by rules, without a model, whether what a message asks for may have to be recalled. Pure.

In English, phrases, verbs and unknown names tell a question about the past. A message in another language may ask for
anything: it is searched for, and what is hardly related to it is left out (EDEN_MEMORY_RECALL_RELATED).
"""

import re

from eden_memory.mongo.document_fields import cut
from eden_memory.redaction import without_secrets
from eden_memory.settings import Settings

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
_WORDS = re.compile(r"[^\W\d_]+")
_ENGLISH = frozenset(
    re.findall(
        r"\w+",
        "the and of are is what who where when why how which that this these those with from about for my your our "
        "their his you she they it does did have had can could would should there please thanks been be him let I",
    )
)
"""Words of which nearly every English message has one, and few of another language."""
OTHER_WORDS = 3
"""Different words of a message in another language that may ask for something, if all are ASCII."""
_NO_NAMES = frozenset((*_DAYS, *_MONTHS, *_OTHERS))


def may_need_recall(message: str, known: str) -> bool:
    """Return whether memory is to be searched for a message; `known` is the context's text."""
    message = _read(message)
    return (
        _is_in_another_language(message)
        or _PHRASES.search(message) is not None
        or any(_PAST.search(found["rest"]) for found in _QUESTION.finditer(message))
        or len(unknown_names(message, known)) >= UNKNOWN_NAMES
    )


def _is_in_another_language(message: str) -> bool:
    """By the words that would be searched for, without the one that may be cut."""
    asked = _end_of(message)
    found = _WORDS.findall(asked)[len(asked) == QUERY_CHARACTERS :]
    words = {word if word == "I" else word.lower() for word in found}
    if words & _ENGLISH:
        return False
    return len(words) >= OTHER_WORDS or not "".join(words).isascii()


def unknown_names(message: str, known: str) -> set[str]:
    """Return capitalised words inside sentences that the context does not contain."""
    names = {found.group().removesuffix("'s") for found in _NAME.finditer(message)}
    lowered = known.casefold()
    return {name for name in names - _NO_NAMES if name.casefold() not in lowered}


def _read(message: str) -> str:
    if len(message) <= 2 * READ_CHARACTERS:
        return message
    return f"{message[:READ_CHARACTERS]}\n{message[-READ_CHARACTERS:]}"


def query_of(message: str, settings: Settings) -> str:
    """Return the query to search for: the message, or the end of a long one.

    Secrets are redacted before the end is taken: half of one would not be recognised any more, but beside a seam.
    """
    return _end_of(without_secrets(cut(message, 2 * READ_CHARACTERS), settings))


def _end_of(message: str) -> str:
    return " ".join(message.split())[-QUERY_CHARACTERS:]
