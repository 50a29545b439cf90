"""Reading one chat message out of an application's document: dotted paths, content of several shapes, times."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from email.utils import parsedate_to_datetime
from functools import lru_cache
from operator import methodcaller
from typing import Any, cast

import orjson

from eden_memory.names import JSON_TEXT

Getter = Callable[[Mapping[str, Any]], Any]
Expression = dict[str, Any]
"""Of MongoDB's aggregation."""

TEXT_PARTS = frozenset({None, "text", "input_text", "output_text"})
"""`type` of the parts whose text counts: OpenAI's, Anthropic's and Google's names."""
PART_KINDS = {
    "tool_result": ("tool_result", "tool-result", "function_response", "functionresponse"),
    "tool_call": ("tool", "function"),
    "thought": ("think", "thought", "reasoning"),
    "image": ("image", "photo", "sticker"),
    "audio": ("audio", "voice"),
    "video": ("video",),
    "file": ("file", "document", "inline"),
}
"""Kinds of parts that have no text of their own, by what stands in their `type` or, without one, in their names."""
ATTACHMENTS = ("image", "audio", "video", "file")
DESCRIBED_BY = (
    "transcript",
    "caption",
    "alt",
    "alt_text",
    "altText",
    "filename",
    "fileName",
    "file_name",
    "file.filename",
    "image_file.filename",
    "title",
)
"""What says in words what an attachment holds, the fullest first."""
ATTACHED_AS = (
    "image_type",
    "video_type",
    "audio_type",
    "content_type",
    "contentType",
    "mimeType",
    "mime",
    "type",
)
"""What says of an attachment beside the content which kind it is."""
ATTACHMENT_DESCRIBED_BY = (
    "transcript",
    "caption",
    "description",
    "alt",
    "filename",
    "fileName",
    "title",
    "name",
)
FILE_FIELDS = tuple(dict.fromkeys((*ATTACHED_AS, *ATTACHMENT_DESCRIBED_BY)))
"""Fields that are read of `files` beside the content, which may hold the files themselves."""
ITEM_CALLS = frozenset({"function_call", "mcp_call"})
"""`type` of a document that is a call itself, without content: an item of OpenAI's Responses."""
CALLED = ("tool_call", "toolInvocation", "functionCall", "function_call", "function")
"""Fields in which a part or a call keeps its name and arguments, where it does not hold them itself."""
NAMES_OF_CALLS, ARGUMENTS_OF_CALLS = ("name", "toolName"), ("arguments", "args", "input")
LONGEST_CALL = 300
REDACTED_OF_CALL = 2_000
"""Characters of a longer call in which secrets are looked for before it is cut: one may stand across the cut."""
AI_SDK_CALL = "tool-"
SPEAKERS = ("role", "sender", "speaker")
"""Fields that say who speaks, and that no part of a message has."""
THOUGHT_BEGINS, THOUGHT_ENDS = "<think>", "</think>"
_BLANKS = re.compile(r"\s*")
_VISIBLE = re.compile(
    "[^\\s\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f"
    "\\u2800\\u3164\\ufe00-\\ufe0f\\ufeff\\uffa0\\U000e0000-\\U000e0fff]"
)
"""A character that can be seen; all others are blank, join characters, or turn their direction."""
CUT = "\n[…]\n"
EPOCH_UNITS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
"""What a number counts since the epoch, by how many make a second."""
EPOCH_ENDS = 100_000_000_000
"""In the year 5138; a number from there on counts the next smaller unit."""
_NUMBER = re.compile(r"\s*-?\d{9,22}(\.\d*)?\s*", re.ASCII)
"""Digits that count from the epoch; up to eight of them are a date (20260102)."""
_SHORT_NUMBER = re.compile(r"-?\d{1,20}(\.\d{1,20})?", re.ASCII)
_RFC_2822 = re.compile(r"\s*([A-Z][a-z]{2},\s*)?\d{1,2} [A-Z][a-z]{2} \d{4} \d\d:\d\d", re.ASCII)


LONGEST_JSON = 4_000_000
"""Characters of a text that is read as JSON."""


class Unusable(ValueError):  # noqa: N818 - a verdict on a document, not a fault of the program
    """Why a document cannot become a message; says which field, never its content."""


class UnreadableJson(Unusable):
    """A field's text is to be JSON, and is none or too long."""


def getter(path: str) -> Getter:
    """Reads a dotted path; None where a part of it is missing, UnreadableJson where one is to be JSON and is not."""
    if "." not in path and not is_json(path):
        return methodcaller("get", path)
    names = [(part, without_json(part)) for part in path.split(".")]

    def read(document: Mapping[str, Any]) -> Any:
        value: Any = document
        for part, name in names:
            value = cast(Mapping[str, Any], value).get(name) if isinstance(value, Mapping) else None
            if part is not name:
                value = as_json(value, part)
        return value

    return read


def is_json(path: str) -> bool:
    """Tell whether a path leads through, or to, a text that is JSON."""
    return JSON_TEXT in path


def without_json(part: str) -> str:
    """Return the name of the field that a part of a path names."""
    return part.removesuffix(JSON_TEXT) if part.endswith(JSON_TEXT) else part


def stored_path(path: str) -> str:
    """Return how far a path leads in the stored document: to the text that is JSON, if there is one."""
    return path.partition(JSON_TEXT)[0]


def without_nested(paths: Sequence[str]) -> list[str]:
    """Remove paths inside other paths: a projection may not name both."""
    return [path for path in paths if not any(path.startswith(outer + ".") for outer in paths)]


def as_json(value: Any, part: str) -> Any:
    """Return what a text says as JSON; None for none, and what is no text as it is."""
    if not isinstance(value, str) or not value:
        return value or None
    if len(value) > LONGEST_JSON:
        raise UnreadableJson(f"{without_json(part)} is longer than {LONGEST_JSON} characters of JSON")
    try:
        return _parsed_json(value)
    except ValueError:
        raise UnreadableJson(f"{without_json(part)} is no JSON text") from None


@lru_cache(maxsize=4)
def _parsed_json(text: str) -> Any:
    """Parse a text; all paths of a document read the same one, one after the other."""
    return orjson.loads(text)


def first_with_text(paths: Sequence[str]) -> Getter:
    """Read the first of the contents at some paths that holds text; where none does, the first that is there."""
    reads = [getter(path) for path in paths]
    if len(reads) == 1:
        return reads[0]

    def read(document: Mapping[str, Any]) -> Any:
        contents = [content for each in reads if (content := each(document))]
        return next(filter(text_of, contents), contents[0] if contents else None)

    return read


def marked_if(conditions: Sequence[str]) -> Callable[[Mapping[str, Any]], bool]:
    """Tell of documents whether one of the conditions marks them, as deleted or excluded.

    `deletedAt`: the field has a value other than false, null, 0 or an empty one. `t=rm`: it holds this text, in any
    case; with nothing behind `=`, it is empty or missing. Numbers and flags are compared by value, also as text:
    `t=1` marks 1, 1.0, true and "1". A missing field is false, too, but not 0.
    """
    tests = [
        (getter(path), wanted.strip().lower() if equal else None)
        for path, equal, wanted in (condition.partition("=") for condition in conditions)
    ]

    def marked(document: Mapping[str, Any]) -> bool:
        return any(_marks(read(document), wanted) for read, wanted in tests)

    return marked


def paths_of(conditions: Sequence[str]) -> list[str]:
    """Return the fields that the conditions of :func:`marked_if` look at."""
    return [condition.partition("=")[0] for condition in conditions]


def _marks(value: Any, wanted: str | None) -> bool:
    is_empty = not value and not isinstance(value, int | float)
    said = "" if is_empty else _by_value(str(value).strip().lower())
    if wanted is None:
        return said not in ("", 0)
    return said == _by_value(wanted) or (said == "" and wanted == "false")


def _by_value(text: str) -> str | Decimal:
    text = {"true": "1", "false": "0"}.get(text, text)
    return Decimal(text) if _SHORT_NUMBER.fullmatch(text) else text


def text_of(content: Any) -> str:
    """The text of a message's content: itself, or its text parts joined by line breaks; "" if nothing is visible.

    Content is text, a part, a list of parts, or a document with such a list in `parts`.
    """
    text = content if isinstance(content, str) else "\n".join(filter(None, map(part_text, _parts(content))))
    return text if _VISIBLE.search(text) else ""


def results_of(content: Any) -> str:
    """Return the texts of tools' results in a message's content: they are nobody's words."""
    results = (
        part.get("content", part.get("output")) for part in _parts(content) if _kind(part) == "tool_result"
    )
    return "\n".join(filter(None, map(text_of, results)))


def calls_of(content: Any, beside: Any = None, redacted: Callable[[str], str] = str) -> str:
    """Return the calls of tools in a message's content, and in the list that OpenAI's messages have beside it: a line
    each, of the name and the beginning of the arguments. `redacted` takes the secrets out of a call before its cut.
    """
    listed = () if isinstance(content, str) else _parts(content)
    parts = [part for part in listed if _kind(part) == "tool_call"]
    parts += cast(list[Any], beside) if isinstance(beside, list) else []
    return "\n".join(filter(None, (_call(part, redacted) for part in parts)))


def _call(part: Any, redacted: Callable[[str], str] = str) -> str:
    """Return one line of a tool's call: name and arguments, cut; "" for what names no tool."""
    fields = _fields(part)
    named = next(_holders(fields), fields)
    name = next((found for key in NAMES_OF_CALLS if isinstance(found := named.get(key), str) and found), "")
    kind = fields.get("type")
    if not name and isinstance(kind, str) and kind.startswith(AI_SDK_CALL):
        name = kind.removeprefix(AI_SDK_CALL)
    if not name:
        return ""
    given = next((named[key] for key in ARGUMENTS_OF_CALLS if named.get(key)), "")
    text = given if isinstance(given, str) else json.dumps(given, default=str, ensure_ascii=False)
    call = f"{name} {text if len(text) <= REDACTED_OF_CALL else text[:REDACTED_OF_CALL] + CUT}"
    line = " ".join((call if len(call) <= LONGEST_CALL else redacted(call)).split())
    return f"[call: {line[:LONGEST_CALL]}]"


def attached(listed: Any) -> Iterator[tuple[str, str]]:
    """Yield of each attachment in a list beside the content its kind, and what says in words what it holds, or ""."""
    for part in cast(list[Any], listed) if isinstance(listed, list) else []:
        if not isinstance(part, Mapping):
            continue
        fields = cast(Mapping[str, Any], part)
        name = next((said for key in ATTACHED_AS if isinstance(said := fields.get(key), str) and said), None)
        kind = _kind({"type": name} if name else fields)
        kind = kind if kind in ATTACHMENTS else "file" if name else "other"
        texts = (fields.get(key) for key in ATTACHMENT_DESCRIBED_BY)
        described = next((said for said in texts if isinstance(said, str) and text_of(said)), "")
        yield kind, described if kind in ATTACHMENTS else ""


def item_call(item: Any) -> Mapping[str, Any] | None:
    """Return a document that is a tool's call itself, else None."""
    fields = _fields(item)
    kind = fields.get("type")
    return fields if isinstance(kind, str) and kind in ITEM_CALLS else None


def kind_of_item(item: Any) -> str | None:
    """Return the kind of a document that has no content, if its `type` names one that has no text."""
    fields = _fields(item)
    kind = _kind(fields) if isinstance(fields.get("type"), str) else "other"
    return kind if kind in ("thought", *ATTACHMENTS) else None


def kinds_left_out(content: Any) -> list[str]:
    """Return the kinds of what is in a message's content beside its text; a name of PART_KINDS or `other` each."""
    if isinstance(content, str):
        return []
    return [
        kind
        for part in _parts(content)
        if part not in ("", None) and not part_text(part)
        for kind in _kinds_lost(part)
    ]


def _kinds_lost(part: Any) -> Sequence[str]:
    """Return what of a part that is no text becomes no text: of a call that holds its result, the result."""
    if (kind := _kind(part)) != "tool_call" or not _call(part):
        return (kind,)
    fields = cast(Mapping[str, Any], part)
    answered = any(each.get("output") or each.get("result") for each in (fields, *_holders(fields)))
    return ("tool_result",) if answered else ()


def _holders(fields: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the documents in a part, or a call, that hold its name and arguments."""
    for name in CALLED:
        if isinstance(found := fields.get(name), Mapping):
            yield cast(Mapping[str, Any], found)


def lists_turns(content: Any) -> bool:
    """Tell whether content lists what several speakers said: that is a conversation, not the parts of a message."""
    if not isinstance(content, list):
        return False
    parts = [cast(Mapping[str, Any], part) for part in cast(list[Any], content) if isinstance(part, Mapping)]
    return len({name for part in parts for field in SPEAKERS if isinstance(name := part.get(field), str)}) > 1


def beside(content: str, name: str) -> str:
    """Return the path of a field beside the one of the content."""
    parent = content.rpartition(".")[0]
    return f"{parent}.{name}" if parent else name


def overlaps(path: str, mapped: Iterable[str]) -> bool:
    """Return whether a path is a part of a mapped one, or a mapped one of it: MongoDB cannot project both."""
    return any(f"{path}.".startswith(f"{name}.") or f"{name}.".startswith(f"{path}.") for name in mapped)


def beside_content(content: str, mapped: Iterable[str]) -> tuple[str, ...]:
    """Return the paths beside the one of the content where a message without text may have its words: captions, and
    what was said in a recording. A path that overlaps with a mapped one is left out.
    """
    names = list(mapped)
    paths = (beside(content, name) for name in ("caption", "audio.transcript"))
    return tuple(path for path in paths if not overlaps(path, names))


_DESCRIPTIONS = [getter(path) for path in DESCRIBED_BY]


def _parts(content: Any) -> Sequence[Any]:
    """Return the parts of content that is no text; none for nothing, Unusable for what is no content."""
    if not content:
        return ()
    if isinstance(content, Mapping):
        part = cast(Mapping[str, Any], content)
        parts = part.get("parts")
        return cast(Sequence[Any], parts) if isinstance(parts, list) else (part,)
    if isinstance(content, Sequence) and not isinstance(content, bytes):
        return cast(Sequence[Any], content)
    raise Unusable(f"content is {type(content).__name__}, not text or a list of parts")


def _fields(part: Any) -> Mapping[str, Any]:
    """Return the fields of a part or an item; none of what is no document."""
    return cast(Mapping[str, Any], part) if isinstance(part, Mapping) else {}


def _kind(part: Any) -> str:
    """Return the kind of a part, in our words: what an application writes there never becomes a metric's label."""
    fields = _fields(part)
    name = fields.get("type")
    named = name.lower() if isinstance(name, str) else " ".join(map(str, fields)).lower()
    return next((kind for kind, words in PART_KINDS.items() if any(word in named for word in words)), "other")


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


def is_text_part(part: Mapping[str, Any]) -> bool:
    """Tell whether a part of a message names the type of a text, or none."""
    kind = part.get("type")
    return isinstance(kind, str | None) and kind in TEXT_PARTS


def part_text(part: Any) -> str:
    """Return the text that a part of a message says; "" for a thought or a call. What describes an attachment has a
    mark: `[image: the boat at the pier]`.
    """
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        return ""
    fields = cast(Mapping[str, Any], part)
    if fields.get("thought") is True:  # Gemini's
        return ""
    text = fields.get("text") if is_text_part(fields) else None
    if isinstance(text, Mapping):  # OpenAI's threads: {"type": "text", "text": {"value": …}}
        text = cast(Mapping[str, Any], text).get("value")
    if isinstance(text, str):
        return text
    if (kind := _kind(fields)) in ATTACHMENTS:
        described = next(
            (said for read in _DESCRIPTIONS if isinstance(said := read(fields), str) and said), ""
        )
        return f"[{kind}: {described}]" if described else ""
    spoken = (fields.get("transcript"), fields.get("caption"))
    return next((said for said in spoken if isinstance(said, str)), "")


def cut(text: str, limit: int) -> str:
    """Head and tail of a text longer than `limit` characters, a mark between them; `limit` long in all."""
    if len(text) <= limit:
        return text
    tail = (limit - len(CUT)) // 3
    if tail < 1:
        return text[:limit]
    return text[: limit - len(CUT) - tail] + CUT + text[-tail:]


def cut_in_query(paths: Sequence[str], limit: int, beside: Sequence[str] = ()) -> Expression:
    """Return what MongoDB computes as `cut(text_of(content), limit)` for the first content that holds text, of those
    at the paths, in an aggregation.

    Of a message without text it cuts the first of the paths `beside` that holds text. A message may have 16 MB, which
    only the server is to read. True stands for content that `text_of` refuses.
    """
    others = [{"case": _says(f"${other}"), "then": _cut_in_query(f"${other}", limit)} for other in beside]
    instead: Any = {"$switch": {"branches": others, "default": None}} if others else None
    *contents, last = paths
    text = _content_in_query(last, limit)
    for path in (*reversed(contents), None):
        if instead is not None:
            lacks = {"$not": [{"$or": [_says("$$text"), {"$eq": ["$$text", True]}]}]}
            text = _let("text", text, {"$cond": [lacks, instead, "$$text"]})
        if path is not None:
            instead, text = text, _content_in_query(path, limit)
    return text


def _content_in_query(path: str, limit: int) -> Expression:
    content = f"${path}"
    listed = {"$cond": [_is(f"{content}.parts", "array"), f"{content}.parts", [content]]}
    return {
        "$switch": {
            "branches": [
                {"case": _is(content, "string"), "then": _cut_in_query(content, limit)},
                {"case": _is(content, "array"), "then": _joined_in_query(content, limit)},
                {"case": _is(content, "object"), "then": _joined_in_query(listed, limit)},
                {"case": {"$or": [{"$not": [content]}, {"$eq": [content, b""]}]}, "then": None},
            ],
            "default": True,
        }
    }


def _says(text: str) -> Expression:
    return {"$and": [_is(text, "string"), {"$ne": [{"$trim": {"input": text}}, ""]}]}


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


def _joined_in_query(parts: Any, limit: int) -> Expression:
    """Join text parts from both ends until what is cut away can no longer change the result."""
    text = {"$cond": [_is("$$part.text", "object"), "$$part.text.value", "$$part.text"]}
    of_text = {"$in": [{"$ifNull": ["$$part.type", None]}, [None, *sorted(filter(None, TEXT_PARTS))]]}
    silent = {"$or": [{"$ne": [{"$type": "$$part"}, "object"]}, {"$eq": ["$$part.thought", True]}]}
    found = [_non_empty(f"$$part.{path}") for path in DESCRIBED_BY]
    description = {"$switch": {"branches": found, "default": ""}}
    marked = {"$concat": ["[", "$$kind", ": ", "$$said", "]"]}
    described = _let("said", description, {"$cond": [{"$eq": ["$$said", ""]}, "", marked]})
    said = {
        "$switch": {
            "branches": [
                {"case": _is("$$part", "string"), "then": "$$part"},
                {"case": silent, "then": ""},
                {"case": {"$and": [of_text, _is(text, "string")]}, "then": text},
                {"case": {"$in": ["$$kind", list(ATTACHMENTS)]}, "then": described},
                {"case": _is("$$part.transcript", "string"), "then": "$$part.transcript"},
                {"case": _is("$$part.caption", "string"), "then": "$$part.caption"},
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
    every = {"$map": {"input": parts, "as": "part", "in": _let("kind", _kind_in_query("$$part"), said)}}
    texts = {"$filter": {"input": every, "cond": {"$ne": ["$$this", ""]}}}
    size = {"$sum": {"$map": {"input": "$$texts", "in": {"$strLenBytes": "$$this"}}}}
    head = _put_together("$$texts", ["$$value", "\n", "$$this"], most)
    tail = _put_together({"$reverseArray": "$$texts"}, ["$$this", "\n", "$$value"], most)
    whole = {"$cond": [{"$lte": ["$$size", enough]}, "$$head", {"$concat": ["$$head", "\n", tail]}]}
    text = _let("text", whole, _cut_in_query("$$text", limit))
    bounded = {"$map": {"input": texts, "as": "said", "in": short}}
    return _let("texts", bounded, _let("size", size, _let("head", head, text)))


def _non_empty(text: str) -> Expression:
    return {"case": {"$and": [_is(text, "string"), {"$ne": [text, ""]}]}, "then": text}


def _kind_in_query(part: str) -> Expression:
    """Return what MongoDB computes as `_kind(part)`."""
    names = {"$map": {"input": {"$objectToArray": part}, "as": "field", "in": "$$field.k"}}
    joined = {"$reduce": {"input": names, "initialValue": "", "in": {"$concat": ["$$value", " ", "$$this"]}}}
    named = {
        "$switch": {
            "branches": [
                {"case": {"$not": [_is(part, "object")]}, "then": ""},
                {"case": _is(f"{part}.type", "string"), "then": f"{part}.type"},
            ],
            "default": joined,
        }
    }
    kinds = [
        {
            "case": {"$or": [{"$gte": [{"$indexOfBytes": ["$$named", word]}, 0]} for word in words]},
            "then": kind,
        }
        for kind, words in PART_KINDS.items()
    ]  # a regular expression would fail on text that is no valid UTF-8
    return _let("named", {"$toLower": named}, {"$switch": {"branches": kinds, "default": "other"}})


def _let(name: str, value: Any, then: Any) -> Expression:
    return {"$let": {"vars": {name: value}, "in": then}}


def _put_together(texts: Any, joined: list[str], most: int) -> Expression:
    first = {"$eq": ["$$value", ""]}
    more = {"$cond": [{"$gte": [{"$strLenBytes": "$$value"}, most]}, "$$value", {"$concat": joined}]}
    return {"$reduce": {"input": texts, "initialValue": "", "in": {"$cond": [first, "$$this", more]}}}


def moment_of(value: Any) -> str | None:
    """RFC 3339 in UTC with milliseconds, of what says a time; else None.

    A date, a timestamp, ISO or RFC 2822 text, a number of seconds, milliseconds, micro- or nanoseconds since the
    epoch (also as text), or an ObjectId, which holds the second in which it was made.
    """
    try:
        moment = value if isinstance(value, datetime) else _as_time(value)
        if moment is not None and moment.tzinfo is not None:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
    except (ArithmeticError, ValueError, OSError):  # no time, or one outside of the calendar
        return None
    return None if moment is None else moment.isoformat("T", "milliseconds") + "Z"


def unit_of(number: float) -> str:
    """Return what a number counts since the epoch: the unit in which it is a time before the year 5138."""
    units = (unit for unit, parts in EPOCH_UNITS.items() if abs(number) < EPOCH_ENDS * parts)
    return next(units, "nanoseconds")


def made_at(identity: Any) -> str | None:
    """Return the second in which an ObjectId was made, as `moment_of`; None for an id that holds no time."""
    return moment_of(identity) if hasattr(identity, "generation_time") else None


def _as_time(value: Any) -> datetime | None:
    """Return the time of BSON's types by what they offer: this module knows no driver."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return _parsed(value)
    if hasattr(value, "generation_time"):  # ObjectId
        return value.generation_time
    if hasattr(value, "inc"):  # Timestamp
        return _counted(value.time)
    if isinstance(value, Mapping):
        return _of_halves(cast(Mapping[str, Any], value))
    number = value.to_decimal() if hasattr(value, "to_decimal") else value
    return _counted(float(number)) if isinstance(number, int | float | Decimal) else None


def _of_halves(number: Mapping[str, Any]) -> datetime | None:
    """Return the time of a number that JavaScript's `long` keeps as two halves of 32 bits, as Baileys stores it."""
    low, high = number.get("low"), number.get("high")
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return None
    return _counted(int(high) * 2**32 + int(low) % 2**32)


def _parsed(text: str) -> datetime:
    if _NUMBER.fullmatch(text):
        return _counted(float(text))
    return parsedate_to_datetime(text) if _RFC_2822.match(text) else datetime.fromisoformat(text)


def _counted(number: float) -> datetime:
    return datetime.fromtimestamp(number / EPOCH_UNITS[unit_of(number)], UTC)
