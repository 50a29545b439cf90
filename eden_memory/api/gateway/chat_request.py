"""Read memory's fields of a chat completion request, and keep the rest byte for byte. Pure."""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from eden_memory.errors import Invalid, describe
from eden_memory.limits import MOST_HITS
from eden_memory.tasks import off_the_loop

T = TypeVar("T")
SMALL_BODY = 100_000
"""Bytes of a request that is read, and taken apart, within a few milliseconds."""
_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder(strict=False)
MEMORY_FIELDS = frozenset(
    {"memory_id", "memory_top_k", "memory_recency_weight", "memory_score_threshold", "memory_hits"}
)
"""None of them ever leaves for the provider."""
MESSAGES = "messages"
INSTRUCTIONS = frozenset({"system", "developer"})


@dataclass(frozen=True, slots=True)
class JsonSpan:
    """A value, and the position of its text."""

    value: Any
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class JsonMember:
    """A member of an object; `start` is where its name starts, `items` are those of an array."""

    name: str
    value: Any
    start: int
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


def without(text: str, members: Iterable[JsonMember], gone: frozenset[str]) -> str:
    """Return the object without the members of these names."""
    return joined(text[member.start : member.end] for member in members if member.name not in gone)


def joined(members: Iterable[str]) -> str:
    """Join members, given as text, to an object."""
    return "{" + ",".join(members) + "}"


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
        return JsonMember(name, [item.value for item in items], start, end, tuple(items))
    value, _, end = _value(text, at)
    return JsonMember(name, value, start, end)


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


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """The memory fields of a request; None: not given."""

    memory_id: str | int | None = None
    user: str | int | None = None
    top_k: int | None = None
    recency_weight: float | None = None
    score_threshold: float | None = None
    """The least relevance of a fact, 0 to 1."""


class ChatRequest:
    """A chat completion request; Invalid if it is not a JSON object or memory's fields are not valid."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        try:
            self._text = body.decode()
            self._members = members_of(self._text, MESSAGES)
        except ValueError as error:
            raise Invalid(
                f"the body is no JSON object: {describe(error)}", "Send a chat completion request."
            ) from None
        self._fields = {member.name: member for member in self._members}
        self.asked = _asked({name: member.value for name, member in self._fields.items()})

    @classmethod
    async def read(cls, body: bytes) -> "ChatRequest":
        """Return the request in a body, which is read beside the event loop if it is large; Invalid."""
        work = partial(cls, body)
        return work() if len(body) <= SMALL_BODY else await off_the_loop(work)

    async def computed(self, work: Callable[[], T]) -> T:
        """Return what is computed of the request: beside the event loop if it is large."""
        return work() if len(self._body) <= SMALL_BODY else await off_the_loop(work)

    @property
    def messages(self) -> list[Any]:
        """Return the messages as received; [] if there is no list of them."""
        member = self._fields.get(MESSAGES)
        return [item.value for item in member.items] if member is not None else []

    @property
    def choices(self) -> int:
        """Return the number of answers that the request asks for."""
        wanted = self._fields.get("n")
        return wanted.value if wanted is not None and isinstance(wanted.value, int) else 1

    @property
    def names_memory(self) -> bool:
        """Tell whether the request has a field of memory's own."""
        return any(member.name in MEMORY_FIELDS for member in self._members)

    def forwarded(self, stable: str = "", changing: str = "", role: str = "system") -> bytes:
        """Return the body for the provider: without memory's fields, with memory as separate messages.

        `stable` stands behind the instructions that open the conversation, `changing` before the last user turn, so
        that what a provider caches of a prompt (its beginning) stays the same from turn to turn.
        """
        added = [
            (place, _message(role, text))
            for place, text in ((self._behind_instructions(), stable), (self._last_user(), changing))
            if text
        ]
        messages = self._fields.get(MESSAGES)
        if messages is None or not messages.items:
            added = []
        if not added and not self.names_memory:
            return self._body
        if messages is None or not added:
            return without(self._text, self._members, MEMORY_FIELDS).encode()
        return joined(self._kept(messages, added)).encode()

    def _kept(self, messages: JsonMember, added: list[tuple[int, str]]) -> list[str]:
        """Return the members to forward; of several lists of messages the last one, as JSON readers do."""
        return [
            with_items(self._text, member, added)
            if member is messages
            else self._text[member.start : member.end]
            for member in self._members
            if member.name not in MEMORY_FIELDS and (member.name != MESSAGES or member is messages)
        ]

    def _behind_instructions(self) -> int:
        for place, message in enumerate(self.messages):
            if role_of(message) not in INSTRUCTIONS:
                return place
        return len(self.messages)

    def _last_user(self) -> int:
        """Return the index of the last user turn; without one, the end of the instructions."""
        for place in range(len(self.messages) - 1, -1, -1):
            if role_of(self.messages[place]) == "user":
                return place
        return self._behind_instructions()


def role_of(message: Any) -> str | None:
    """Return the role that a message names."""
    role = message.get("role") if isinstance(message, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return role if isinstance(role, str) else None


def _message(role: str, text: str) -> str:
    return json.dumps({"role": role, "content": text}, ensure_ascii=False)


def _asked(fields: dict[str, Any]) -> MemoryOptions:
    return MemoryOptions(
        memory_id=_id(fields, "memory_id"),
        user=_id(fields, "user"),
        top_k=_top_k(fields.get("memory_top_k")),
        recency_weight=_number(fields, "memory_recency_weight"),
        score_threshold=_number(fields, "memory_score_threshold"),
    )


def _id(fields: dict[str, Any], name: str) -> str | int | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise Invalid(f"{name} is no id", "Give it as text or as an integer.")
    return value


def _top_k(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_HITS:
        raise Invalid("memory_top_k is not valid", f"Give an integer from 0 to {MOST_HITS}.")
    return value


def _number(fields: dict[str, Any], name: str) -> float | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise Invalid(f"{name} is not valid", "Give a number from 0 to 1.")
    return float(value)
