"""Read a JSON object with the positions of its members, so that what is not changed keeps its bytes. Pure."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder(strict=False)


@dataclass(frozen=True, slots=True)
class JsonSpan:
    """A value, and the position of its text."""

    value: Any
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class JsonMember:
    """A member of an object; `start` is where its name starts, `value_at` where its value does, `items` are those of
    an array.
    """

    name: str
    value: Any
    start: int
    value_at: int
    end: int
    items: tuple[JsonSpan, ...] = ()


def members_of(text: str, array: str) -> list[JsonMember]:
    """Return the members of a JSON object in order, with the items of the member named `array`.

    A ValueError if the text is no JSON object.
    """
    at = _expect(text, _space(text, 0), "{")
    members: list[JsonMember] = []
    if text[at : at + 1] == "}":
        return _ended(text, at + 1, members)
    while True:
        name, start, end = _value(text, at)
        if not isinstance(name, str):
            raise ValueError("a member has no name")
        at = _expect(text, _space(text, end), ":")
        member = _member(text, name, start, at, array)
        members.append(member)
        at = _space(text, member.end)
        if text[at : at + 1] == "}":
            return _ended(text, at + 1, members)
        at = _expect(text, at, ",")


def with_items(text: str, member: JsonMember, added: Iterable[tuple[int, str]]) -> str:
    """Return the text of an array member with further items before the given places."""
    before: dict[int, list[str]] = {}
    for place, item in added:
        before.setdefault(place, []).append(item)
    items: list[str] = []
    for place, item in enumerate(member.items):
        items += [*before.get(place, ()), text[item.start : item.end]]
    items += before.get(len(member.items), ())
    return f"{json.dumps(member.name)}:[{','.join(items)}]"


def _member(text: str, name: str, start: int, at: int, array: str) -> JsonMember:
    if name == array and text[at : at + 1] == "[":
        items, end = _items(text, at)
        return JsonMember(name, [item.value for item in items], start, at, end, tuple(items))
    value, _, end = _value(text, at)
    return JsonMember(name, value, start, at, end)


def _items(text: str, at: int) -> tuple[list[JsonSpan], int]:
    at = _expect(text, at, "[")
    items: list[JsonSpan] = []
    if text[at : at + 1] == "]":
        return items, at + 1
    while True:
        value, start, end = _value(text, at)
        items.append(JsonSpan(value, start, end))
        at = _space(text, end)
        if text[at : at + 1] == "]":
            return items, at + 1
        at = _expect(text, at, ",")


def _value(text: str, at: int) -> tuple[Any, int, int]:
    """Return a value, its start and its end."""
    try:
        value, end = _DECODER.raw_decode(text, at)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value, at, end


def _expect(text: str, at: int, mark: str) -> int:
    """Return the position behind the mark and white space."""
    if text[at : at + 1] != mark:
        raise ValueError(f"{mark} expected at character {at}")
    return _space(text, at + 1)


def _space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _ended(text: str, at: int, members: list[JsonMember]) -> list[JsonMember]:
    if _space(text, at) != len(text):
        raise ValueError(f"more behind the object, at character {at}")
    return members
