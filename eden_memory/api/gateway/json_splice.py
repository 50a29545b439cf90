"""A JSON object taken apart without being written anew: what is not changed keeps its bytes. Pure."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder(strict=False)


@dataclass(frozen=True, slots=True)
class Span:
    """A value, and where its text is."""

    value: Any
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an object: `start` is that of its name, `items` are those of an array."""

    name: str
    value: Any
    start: int
    end: int
    items: tuple[Span, ...] = ()


def members_of(text: str, array: str) -> list[Member]:
    """The members of the object that the text is, in order; the items of the member named `array` one by one.

    A ValueError if the text is no JSON object.
    """
    at = _expect(text, _space(text, 0), "{")
    members: list[Member] = []
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


def without(text: str, members: Iterable[Member], gone: frozenset[str]) -> str:
    """The object without the members of these names."""
    return joined(text[one.start : one.end] for one in members if one.name not in gone)


def joined(members: Iterable[str]) -> str:
    """An object of members given as text."""
    return "{" + ",".join(members) + "}"


def with_items(text: str, member: Member, added: Iterable[tuple[int, str]]) -> str:
    """The text of a member that is an array, further items before the given places."""
    before: dict[int, list[str]] = {}
    for place, item in added:
        before.setdefault(place, []).append(item)
    items: list[str] = []
    for place, item in enumerate(member.items):
        items += [*before.get(place, ()), text[item.start : item.end]]
    items += before.get(len(member.items), ())
    return f"{json.dumps(member.name)}:[{','.join(items)}]"


def _member(text: str, name: str, start: int, at: int, array: str) -> Member:
    if name == array and text[at : at + 1] == "[":
        items, end = _items(text, at)
        return Member(name, [one.value for one in items], start, end, tuple(items))
    value, _, end = _value(text, at)
    return Member(name, value, start, end)


def _items(text: str, at: int) -> tuple[list[Span], int]:
    at = _expect(text, at, "[")
    items: list[Span] = []
    if text[at : at + 1] == "]":
        return items, at + 1
    while True:
        value, start, end = _value(text, at)
        items.append(Span(value, start, end))
        at = _space(text, end)
        if text[at : at + 1] == "]":
            return items, at + 1
        at = _expect(text, at, ",")


def _value(text: str, at: int) -> tuple[Any, int, int]:
    """(value, its start, its end)."""
    try:
        value, end = _DECODER.raw_decode(text, at)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value, at, end


def _expect(text: str, at: int, mark: str) -> int:
    """The place of what follows the mark and white space."""
    if text[at : at + 1] != mark:
        raise ValueError(f"{mark} expected at character {at}")
    return _space(text, at + 1)


def _space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _ended(text: str, at: int, members: list[Member]) -> list[Member]:
    if _space(text, at) != len(text):
        raise ValueError(f"more behind the object, at character {at}")
    return members
