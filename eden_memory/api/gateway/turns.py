"""Find the new turns of a request and name them; a repeated turn gets the same name. Pure.

A client sends the whole history with every turn. Stored are the turns behind the last answer; of the history nothing,
but for the last answer, should it be missing behind a turn that is known (a process ended before it was stored).

A turn's name is made of the session, the turn before it, what it says, and how often the two followed one another in
the history. Of a history that is cut, only the last depends on how much of it a client still sends: TurnStore.put_new
counts on from what is stored.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from eden_memory.api.gateway.chat_request import INSTRUCTIONS, role_of
from eden_memory.mongo.document_fields import TEXT_PARTS, Unusable, cut, text_of, without_thoughts
from eden_memory.names import hashed
from eden_memory.settings import Role

PREFIX = "gw-"
MOST_CHARACTERS = 200_000
ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "tool": "tool", "function": "tool"}
START = "start"


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """One turn under its name; `slot` begins the names of all that may stand in its place."""

    name: str
    slot: str
    role: Role
    text: str
    mark: str = ""
    """What it says, in its name; "": it is named otherwise, and never said again under another name."""
    nth: int = 0
    """How often it was said before in this place."""

    def repeat(self, times: int) -> "ChatTurn":
        """Return the turn as it is named when it is said again, so many times."""
        nth = self.nth + times
        return replace(self, name=_name(self.slot, self.mark, nth), nth=nth)


@dataclass(frozen=True, slots=True)
class Lost:
    """An answer of the history: to be stored if the turn before it is known and nothing stands in its place."""

    answer: ChatTurn
    behind: str


@dataclass(frozen=True, slots=True)
class _Said:
    role: Role
    text: str
    mark: str


class Turns:
    """A request's turns in a session (its typed id)."""

    def __init__(self, session_id: str, messages: Sequence[Any], *, instructions: bool = False) -> None:
        self.session = session_prefix(session_id)
        said = [_said(message) for message in messages if role_of(message) not in {None, *INSTRUCTIONS}]
        while said and said[-1].role == "assistant":  # the beginning of the answer that is asked for
            said.pop()
        self._seen: Counter[tuple[str, str]] = Counter()
        self._last = START
        named = [self._named(turn) for turn in said]
        first_new = 1 + max((n for n, turn in enumerate(said) if turn.role == "assistant"), default=-1)
        self.history = named[:first_new]
        self.new = [turn for turn in named[first_new:] if turn.text]
        if instructions:
            self.new = [*self._instructions(messages), *self.new]
        self.lost = _lost(self.history)

    def answer(self, text: str) -> ChatTurn | None:
        """Return the turn that answers the request."""
        text = without_thoughts(text).strip()
        said = _Said("assistant", storable(text), hashed("assistant", text))
        return self._turn(said, self._seen[self._last, said.mark]) if said.text else None

    def _named(self, said: _Said) -> ChatTurn:
        turn = self._turn(said, self._seen[self._last, said.mark])
        self._seen[self._last, said.mark] += 1
        self._last = said.mark
        return turn

    def _turn(self, said: _Said, nth: int) -> ChatTurn:
        slot = f"{self.session}{hashed(self._last)}-"
        return ChatTurn(_name(slot, said.mark, nth), slot, said.role, said.text, said.mark, nth)

    def _instructions(self, messages: Iterable[Any]) -> list[ChatTurn]:
        texts = [_text(message) for message in messages if role_of(message) in INSTRUCTIONS]
        slot = f"{self.session}{hashed('instructions')}-"
        return [ChatTurn(slot + hashed(text), slot, "system", storable(text)) for text in texts if text]


def _name(slot: str, mark: str, nth: int) -> str:
    return slot + hashed(mark, str(nth))


def session_prefix(session_id: str) -> str:
    """Return the prefix of the names of all turns of a session."""
    return f"{PREFIX}{hashed(session_id)}-"


def last_user_text(messages: Sequence[Any]) -> str:
    """Return the user's last text; "" if it has no text."""
    return next((_text(message) for message in reversed(messages) if role_of(message) == "user"), "")


def _lost(history: Sequence[ChatTurn]) -> Lost | None:
    """Return the last answer of the history, with the turn before it."""
    if len(history) < 2 or not history[-1].text:
        return None
    return Lost(history[-1], history[-2].name)


def _said(message: dict[str, Any]) -> _Said:
    role = ROLES.get(message["role"], "other")
    text = _text(message)
    return _Said(role, storable(text), hashed(role, text, *_beside(role, message)))


def _text(message: dict[str, Any]) -> str:
    try:
        text = text_of(message.get("content"))
    except Unusable:
        return ""
    return (without_thoughts(text) if message["role"] == "assistant" else text).strip()


def _beside(role: Role, message: dict[str, Any]) -> list[str]:
    """Return what distinguishes turns with the same text: pictures, the call that a result belongs to."""
    if role == "tool":
        return [str(message.get("tool_call_id"))]
    content = message.get("content")
    if role != "user" or not isinstance(content, list):
        return []
    parts = cast("list[Any]", content)
    return [json.dumps(part, sort_keys=True) for part in parts if not _is_text(part)]


def _is_text(part: Any) -> bool:
    return isinstance(part, str) or (
        isinstance(part, dict) and cast("dict[str, Any]", part).get("type") in TEXT_PARTS
    )


def storable(text: str) -> str:
    """Return the text as MongoDB accepts it: without lone surrogates, cut at MOST_CHARACTERS."""
    return cut(text.encode(errors="replace").decode(), MOST_CHARACTERS)
