"""Reading one chat message out of an application's document: dotted paths, content of several shapes, times."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from operator import methodcaller
from typing import Any, cast

Getter = Callable[[Mapping[str, Any]], Any]
Expression = dict[str, Any]
"""Of MongoDB's aggregation."""

TEXT_PARTS = frozenset({None, "text", "input_text", "output_text"})
"""`type` of the parts whose text counts: OpenAI's, Anthropic's and Google's names."""
THOUGHT_BEGINS, THOUGHT_ENDS = "<think>", "</think>"
_BLANKS = re.compile(r"\s*")
CUT = "\n[…]\n"
MILLISECONDS_FROM = 100_000_000_000
"""A number above it counts milliseconds since the epoch, below it seconds (the year 5138)."""


class Unusable(ValueError):  # noqa: N818 - a verdict on a document, not a fault of the program
    """Why a document cannot become a message; says which field, never its content."""


def getter(path: str) -> Getter:
    """Reads a dotted path; None where a part of it is missing."""
    if "." not in path:
        return methodcaller("get", path)
    names = path.split(".")

    def read(document: Mapping[str, Any]) -> Any:
        value: Any = document
        for name in names:
            value = cast(Mapping[str, Any], value).get(name) if isinstance(value, Mapping) else None
        return value

    return read


def deleted_if(conditions: Sequence[str]) -> Callable[[Mapping[str, Any]], bool]:
    """Tell of documents whether one of the conditions marks them as deleted.

    `deletedAt`: the field has a value other than false, null, 0 or an empty one. `t=rm`: it holds this text, in any
    case; with nothing behind `=`, it is empty or missing.
    """
    tests = [
        (getter(path), wanted.strip().lower() if equal else None)
        for path, equal, wanted in (condition.partition("=") for condition in conditions)
    ]

    def deleted(document: Mapping[str, Any]) -> bool:
        return any(_marks(read(document), wanted) for read, wanted in tests)

    return deleted


def paths_of(conditions: Sequence[str]) -> list[str]:
    """Return the fields that the conditions of :func:`deleted_if` look at."""
    return [condition.partition("=")[0] for condition in conditions]


def _marks(value: Any, wanted: str | None) -> bool:
    if not value or wanted is None:
        return bool(value) if wanted is None else wanted in ("", "false")
    return str(value).strip().lower() == wanted


def text_of(content: Any) -> str:
    """The text of a message's content: itself, or its text parts joined by line breaks; "" for none."""
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if isinstance(content, Sequence) and not isinstance(content, bytes):
        return "\n".join(filter(None, map(_part_text, cast(Sequence[Any], content))))
    raise Unusable(f"content is {type(content).__name__}, not text or a list of parts")


def without_thoughts(text: str) -> str:
    """Return a model's answer without the thoughts before it (`<think>…</think>`); "" where it only thinks.

    Some models leave the first tag to the prompt, and an answer that is broken off lacks the last one.
    """
    at = _behind_blanks(text, 0)
    if THOUGHT_ENDS not in text and not text.startswith(THOUGHT_BEGINS, at):
        return text
    while text.startswith(THOUGHT_BEGINS, at):
        end = text.find(THOUGHT_ENDS, at)
        if end < 0:
            return ""
        at = _behind_blanks(text, end + len(THOUGHT_ENDS))
    end = text.find(THOUGHT_ENDS, at)
    thinks = end >= 0 and text.find(THOUGHT_BEGINS, at, end) < 0
    if thinks and not text[text.rfind("\n", at, end) + 1 : end].strip():  # the tag begins its line
        at = _behind_blanks(text, end + len(THOUGHT_ENDS))
    return text[at:]


def _behind_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        return ""
    fields = cast(Mapping[str, Any], part)
    if fields.get("thought") is True:  # Gemini's
        return ""
    text = fields.get("text")
    if isinstance(text, Mapping):  # OpenAI's threads: {"type": "text", "text": {"value": …}}
        text = cast(Mapping[str, Any], text).get("value")
    return text if isinstance(text, str) and fields.get("type") in TEXT_PARTS else ""


def cut(text: str, limit: int) -> str:
    """Head and tail of a text longer than `limit` characters, a mark between them; `limit` long in all."""
    if len(text) <= limit:
        return text
    tail = (limit - len(CUT)) // 3
    if tail < 1:
        return text[:limit]
    return text[: limit - len(CUT) - tail] + CUT + text[-tail:]


def cut_in_query(path: str, limit: int) -> Expression:
    """Return what MongoDB computes as `cut(text_of(content), limit)` for the content at a path, in an aggregation.

    A message may have 16 MB, which only the server is to read. False stands for content that `text_of` refuses.
    """
    content = f"${path}"
    return {
        "$switch": {
            "branches": [
                {"case": _is(content, "string"), "then": _cut_in_query(content, limit)},
                {"case": _is(content, "array"), "then": _joined_in_query(content, limit)},
                {"case": {"$eq": [{"$ifNull": [content, None]}, None]}, "then": None},
            ],
            "default": False,
        }
    }


def _is(value: Any, kind: str) -> Expression:
    return {"$eq": [{"$type": value}, kind]}


def _cut_in_query(text: Any, limit: int) -> Expression:
    length, tail = {"$strLenCP": text}, (limit - len(CUT)) // 3
    if tail < 1:
        return {"$substrCP": [text, 0, limit]}
    ends = [
        {"$substrCP": [text, 0, limit - len(CUT) - tail]},
        CUT,
        {"$substrCP": [text, {"$subtract": [length, tail]}, tail]},
    ]
    # The length in bytes is known without reading the text.
    long = {"$and": [{"$gt": [{"$strLenBytes": text}, limit]}, {"$gt": [length, limit]}]}
    return {"$cond": [long, {"$concat": ends}, text]}


def _joined_in_query(parts: str, limit: int) -> Expression:
    """Join text parts from both ends until what is cut away can no longer change the result."""
    text = {"$cond": [_is("$$part.text", "object"), "$$part.text.value", "$$part.text"]}
    kinds = {
        "$and": [
            {"$in": [{"$ifNull": ["$$part.type", None]}, [None, *sorted(filter(None, TEXT_PARTS))]]},
            {"$ne": ["$$part.thought", True]},
        ]
    }
    said = {
        "$switch": {
            "branches": [
                {"case": _is("$$part", "string"), "then": "$$part"},
                {"case": {"$and": [_is("$$part", "object"), kinds, _is(text, "string")]}, "then": text},
            ],
            "default": "",
        }
    }
    # So many bytes are at least as many characters as are kept; a part of twice as many may be cut to its own ends.
    enough, most = 4 * limit, 8 * limit
    ends = [
        {"$substrCP": ["$$said", 0, limit]},
        {"$substrCP": ["$$said", {"$subtract": [{"$strLenCP": "$$said"}, limit]}, limit]},
    ]
    short = {"$cond": [{"$gt": [{"$strLenBytes": "$$said"}, most]}, {"$concat": ends}, "$$said"]}
    every = {"$map": {"input": parts, "as": "part", "in": said}}
    texts = {"$filter": {"input": every, "cond": {"$ne": ["$$this", ""]}}}
    size = {"$sum": {"$map": {"input": "$$texts", "in": {"$strLenBytes": "$$this"}}}}
    head = _put_together("$$texts", ["$$value", "\n", "$$this"], most)
    tail = _put_together({"$reverseArray": "$$texts"}, ["$$this", "\n", "$$value"], most)
    whole = {"$cond": [{"$lte": ["$$size", enough]}, "$$head", {"$concat": ["$$head", "\n", tail]}]}
    text = _let("text", whole, _cut_in_query("$$text", limit))
    bounded = {"$map": {"input": texts, "as": "said", "in": short}}
    return _let("texts", bounded, _let("size", size, _let("head", head, text)))


def _let(name: str, value: Any, then: Any) -> Expression:
    return {"$let": {"vars": {name: value}, "in": then}}


def _put_together(texts: Any, joined: list[str], most: int) -> Expression:
    first = {"$eq": ["$$value", ""]}
    more = {"$cond": [{"$gte": [{"$strLenBytes": "$$value"}, most]}, "$$value", {"$concat": joined}]}
    return {"$reduce": {"input": texts, "initialValue": "", "in": {"$cond": [first, "$$this", more]}}}


def moment_of(value: Any) -> str | None:
    """RFC 3339 in UTC with milliseconds, of a date, ISO text, a number of (milli)seconds, or an ObjectId; else None.

    An ObjectId holds the second in which it was made.
    """
    if not isinstance(value, datetime):
        value = _as_time(value)
    if value is None:
        return None
    if value.tzinfo is not None:
        try:
            value = value.astimezone(UTC).replace(tzinfo=None)
        except OverflowError:  # the first or last hours of the calendar, in another zone
            return None
    return value.isoformat("T", "milliseconds") + "Z"


def _as_time(value: Any) -> datetime | None:
    if isinstance(value, str):
        return _parsed(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _counted(value)
    made = getattr(value, "generation_time", None)
    return made if isinstance(made, datetime) else None


def _parsed(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _counted(number: float) -> datetime | None:
    seconds = number / 1000 if abs(number) >= MILLISECONDS_FROM else number
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None
