"""The conversation of the bench beside other memories: turns of examples/demo.jsonl, and ten facts said again.

A table says which facts a message states and in which words, so every system's model finds the same.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any

import yaml

from eden_memory.demo.conversation import EXAMPLE, plain_text

SESSIONS = ("s-mara-plan", "s-tomas-start", "s-priya-books", "s-mara-sunday", "s-tomas-room", "s-mara-order")
"""Sessions of one user each."""
SAME_WORDS = ("mara-anders", "tomas-work", "tomas-no-car", "vat-return", "vat-rate")
"""Facts whose message is written once more, as it was."""
OTHER_WORDS = {
    "bolts-ordered": (
        "Just so you know: the keel bolts are on order at Nordbolt, price 9,850, they come on 1 April.",
        "The keel bolts are on order at Nordbolt for 9,850 kronor and come on 1 April.",
    ),
    "mara-run": (
        "I have a place in the Göteborgsvarvet on 23 May, the half marathon.",
        "Mara has a place in the Göteborgsvarvet half marathon of 23 May 2026.",
    ),
    "tomas-allergy": (
        "Epoxy hardener gives me a rash, I can not stand it.",
        "Epoxy hardener gives Tomás a rash: he is allergic to it.",
    ),
    "tomas-swedish": (
        "On Tuesday evenings I am at my Swedish lessons, SFI B.",
        "On Tuesday evenings Tomás has Swedish lessons, SFI level B.",
    ),
    "fortnox": (
        "From 1 April the books of the yard are in Fortnox, Visma is over.",
        "From 1 April 2026 the yard keeps its books in Fortnox in place of Visma.",
    ),
}
"""Fact → message and statement in other words."""


@dataclass(frozen=True, eq=False)
class Turn:
    """What a user says, and what the assistant answers."""

    session: str
    user: str
    messages: tuple[dict[str, str], ...]

    @property
    def text(self) -> str:
        return "\n".join(one["content"] for one in self.messages)

    @property
    def facts(self) -> list[str]:
        """The facts that it states."""
        return [fact for fact, _ in stated_in(self.text)]


@dataclass(frozen=True)
class Table:
    """Which message states what."""

    stated: dict[str, tuple[tuple[str, str], ...]]
    """Message → facts with their statements."""
    meanings: dict[str, str]
    """Statement → fact."""
    users: dict[str, str]
    """Fact → who told it."""


def stated_in(text: str) -> list[tuple[str, str]]:
    """The facts that a text states, each with its statement."""
    return [fact for message, facts in table().stated.items() if message in text for fact in facts]


def meaning(statement: str) -> str | None:
    """The fact that a statement says."""
    return table().meanings.get(statement.strip())


@cache
def table() -> Table:
    """Of all messages of the conversation."""
    stated: dict[str, list[tuple[str, str]]] = {}
    users: dict[str, str] = {}
    said = {one["id"]: one for one in _messages() if one["role"] == "user"}
    for fact in yaml.safe_load(EXAMPLE.with_suffix(".expected.yaml").read_text())["facts"]:
        if sources := [said[name] for name in fact["from"] if name in said]:
            stated.setdefault(sources[-1]["content"], []).append((fact["id"], fact["says"]))
            users[fact["id"]] = sources[-1]["user"]
    for name, (message, statement) in OTHER_WORDS.items():
        stated[message] = [(name, statement)]
    meanings = {statement: name for facts in stated.values() for name, statement in facts}
    return Table({message: tuple(facts) for message, facts in stated.items()}, meanings, users)


@cache
def turns() -> tuple[Turn, ...]:
    """All of them; the last three sessions say ten facts again."""
    return (*_demo_turns(), *_said_again())


def _messages() -> Iterator[dict[str, Any]]:
    """What users and assistant say in these sessions, in the order of the file."""
    for line in EXAMPLE.read_text().splitlines():
        one = json.loads(line)
        if one["session"] in SESSIONS and one["role"] in ("user", "assistant"):
            yield {**one, "content": plain_text(one["content"])}


def _demo_turns() -> Iterator[Turn]:
    for session, messages in groupby(_messages(), lambda one: one["session"]):
        open_turn: list[dict[str, Any]] = []
        for one in messages:
            if one["role"] == "user" and open_turn and open_turn[-1]["role"] == "assistant":
                yield _turn(session, open_turn)
                open_turn = []
            open_turn.append(one)
        yield _turn(session, open_turn)


def _turn(session: str, messages: list[dict[str, Any]]) -> Turn:
    user = next(one["user"] for one in messages if one["role"] == "user")
    return Turn(session, user, tuple({"role": one["role"], "content": one["content"]} for one in messages))


def _said_again() -> Iterator[Turn]:
    users, stated = table().users, table().stated
    first = {fact: message for message, facts in reversed(stated.items()) for fact, _ in facts}
    again = {name: first[name] for name in SAME_WORDS} | {
        name: message for name, (message, _) in OTHER_WORDS.items()
    }
    for user in ("mara", "tomas", "priya"):
        for name, message in again.items():
            if users[name] == user:
                answer = {"role": "assistant", "content": "Thank you, I have that."}
                yield Turn(f"s-{user}-again", user, ({"role": "user", "content": message}, answer))
