"""What the model says: a script from a prompt to an answer, and the one that answers where a test has none."""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from tests.model_server.config import FaultName
from tests.model_server.wire import Chat

Kind = Literal[
    "facts", "decisions", "reflections", "memory", "consolidation", "propagation", "check", "unknown"
]
FIELDS: dict[str, Kind] = {
    "facts": "facts",
    "decisions": "decisions",
    "reflections": "reflections",
    "text": "consolidation",
    "propagated": "propagation",
    "works": "check",
}
TITLES: dict[str, Kind] = {
    "ExtractedFacts": "facts",
    "FactDecisions": "decisions",
    "StatedReflections": "reflections",
    "ConsolidatedText": "consolidation",
    "JudgedReflections": "propagation",
    "Checked": "check",
}
NUMBERED = re.compile(r"^\[(\d+)\][ \t]*", re.MULTILINE)
LETTERS = str.maketrans("0123456789", "ghijklmnop")
"""A name of digits alone would read as somebody's number."""
LABEL = re.compile(r"^- (agent|group|user|session|shard:.+?)(?=:| \d+-\d+:)", re.MULTILINE)
FENCE = re.compile(r"^<<.*>>$", re.MULTILINE)
MARK = re.compile(r"\bMARK-\d+\b")
LIMIT = re.compile(r"(\d[\d,]*)\s+words")
ITEM = re.compile(r"^\s*- (?:\[[\d :-]+\] )?(\S.*)$", re.MULTILINE)
"""A line of a list, without the time that a reflection begins with."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Said by a script in place of an answer."""

    name: FaultName


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as a script sees it."""

    kind: Kind
    model: str
    system: str
    user: str
    """The first user turn."""
    turns: tuple[tuple[str, str], ...]
    """All of them: a repair has three or more."""
    schema: dict[str, Any] | None
    nth: int
    """How often this very request came before."""

    @property
    def messages(self) -> dict[int, str]:
        """Texts behind `[n]` at the start of a line, by number; the first of a number counts."""
        found = list(NUMBERED.finditer(self.user))
        ends = [*(one.start() for one in found[1:]), len(self.user)]
        texts: dict[int, str] = {}
        for one, end in zip(found, ends, strict=True):
            texts.setdefault(int(one[1]), FENCE.sub("", self.user[one.end() : end]).strip())
        return texts

    @property
    def labels(self) -> tuple[str, ...]:
        """Scopes that the instructions list, `- <label>…`, from broad to narrow as they stand there."""
        return tuple(dict.fromkeys(LABEL.findall(self.system)))


Said = str | dict[str, Any] | Fault
Script = Callable[[Asked], Said]


def asked_of(chat: Chat, nth: int) -> Asked:
    """The request with its kind found."""
    return Asked(_kind(chat), chat.model, chat.system, chat.user, chat.turns, chat.schema, nth)


def _kind(chat: Chat) -> Kind:
    table, text = TITLES, f"{chat.system}\n{chat.user}"
    if chat.schema is not None:
        table, text = FIELDS, " ".join(chat.schema.get("properties") or {})
        if {"facts", "reflections"} <= set(text.split()):
            return "memory"
    for word, kind in table.items():
        if re.search(rf"\b{word}\b", text):
            return kind
    return "unknown"


def default_script(asked: Asked) -> Said:
    """A valid answer to each kind of prompt: what it holds is said by the functions below."""
    answer = ANSWERS.get(asked.kind)
    return answer(asked) if answer else "I have nothing to say."


def marked_facts(asked: Asked) -> dict[str, Any]:
    """One fact for every message with a `MARK-<digits>`, of the narrowest scope shown, resting on that message."""
    scope = next((label for label in ("user", "group", "agent") if label in asked.labels), "user")
    return {
        "facts": [
            {
                "text": of_all(mark[0])
                if scope == "agent"
                else f"{mark[0]} was mentioned {_around(text, mark)}".strip(),
                "scope": scope,
                "messages": [number],
                "occurred_at": None,
            }
            for number, text in asked.messages.items()
            if (mark := MARK.search(text))
        ]
    }


def of_all(mark: str, around: str = "") -> str:
    """As an agent may hold it: of nobody."""
    return f"The company noted {mark} {around}".strip()


def _around(text: str, mark: re.Match[str]) -> str:
    """Twelve words from the mark on."""
    return " ".join(text[mark.end() :].split()[:12])


def no_decisions(asked: Asked) -> dict[str, Any]:
    """None named: all are added."""
    return {"decisions": []}


def three_reflections(asked: Asked) -> dict[str, Any]:
    """Two of the user, where that scope is shown, and one of the session; the same prompt says the same."""
    name = hashlib.sha256(asked.user.encode()).hexdigest()[:10].translate(LETTERS)
    numbers = sorted(asked.messages)[:2]
    stated = [
        ("user", f"Prefers short answers about topic {name}."),
        ("user", f"Knows a lot about subject {name} already."),
        ("session", f"The session is about matter {name}."),
    ]
    shown = asked.labels or ("user", "session")
    return {
        "reflections": [
            {"text": text, "scope": scope, "messages": numbers} for scope, text in stated if scope in shown
        ]
    }


def merged(asked: Asked) -> dict[str, Any]:
    """The listed items, each once, the last ones as far as the word limit allows."""
    limit = min(
        (int(found.replace(",", "")) for found in LIMIT.findall(asked.system + asked.user)), default=100
    )
    kept: list[str] = []
    for found in reversed(list(dict.fromkeys(ITEM.findall(asked.user)))):
        item = f"- {found}"
        if sum(len(one.split()) for one in (*kept, item)) > limit:
            break
        kept.append(item)
    return {"text": "\n".join(reversed(kept)) or "Nothing yet."}


def judged(said: dict[str, Any]) -> dict[str, Any]:
    """An answer with the judgement of a model that believes in the scopes that it chose, unless the script judges."""
    kinds = said.keys() & {"facts", "reflections", "propagated"}
    return {**said, **{kind: [_with_judgement(item) for item in said[kind]] for kind in kinds}}


def _with_judgement(item: dict[str, Any]) -> dict[str, Any]:
    personal = item.get("scope") in ("user", "session")
    return {"about": "person" if personal else "organisation", "sensitive": False, **item}


ANSWERS: dict[Kind, Callable[[Asked], Said]] = {
    "facts": marked_facts,
    "decisions": no_decisions,
    "reflections": three_reflections,
    "memory": lambda asked: {**marked_facts(asked), **three_reflections(asked)},
    "consolidation": merged,
    "propagation": lambda _: {"propagated": []},
    "check": lambda _: {"works": True},
}
UNSHOWN: dict[str, str] = {
    "facts": '{"facts": [{"text": "The moon is 9.", "scope": "user:someone-else", "messages": [9999, -1]}]}',
    "decisions": '{"decisions": ['
    '{"fact": 9999, "decision": "DELETE", "existing": 1, "text": null, "reason": "x"}, '
    '{"fact": 1, "decision": "DELETE", "existing": 9999, "text": null, "reason": "x"}]}',
    "reflections": '{"reflections": [{"text": "Obeys.", "scope": "agent:someone-else", "messages": [9999]}]}',
}
"""Valid in shape, naming what no prompt showed."""
