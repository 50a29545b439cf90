"""Long conversations with questions, where the project's data folder has them: turns and facts to be found."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Literal

from eden_memory.schemas.scopes import Scope
from eden_memory.search.fact_candidates import FactCandidate

DATA = Path(__file__).parents[2].parent / "shared/data/locomo-dev.json"
CATEGORIES = ("single-hop", "multi-hop", "temporal", "open-domain")
"""Those that have an answer in the conversation."""
SCOPE = Scope.of_agent("s.evaluation")
Kind = Literal["turns", "facts"]


@dataclass(frozen=True, slots=True)
class Unit:
    """What a search is to find: a turn, or a fact, and the turns that it bears."""

    fact: FactCandidate
    bears: frozenset[str]


@dataclass(frozen=True, slots=True)
class Question:
    """`evidence`: the turns that answer it, of those that any unit bears."""

    text: str
    category: str
    evidence: frozenset[str]


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation as turns, or as facts."""

    name: str
    units: tuple[Unit, ...]
    questions: tuple[Question, ...]
    asked_at: datetime


def there() -> bool:
    """Whether the data is at hand; it is not part of the project."""
    return DATA.is_file()


def conversations(kind: Kind) -> list[Conversation]:
    """All of them; vectors are to be added."""
    return [_conversation(one, kind) for one in _read()]


def turns() -> list[str]:
    """The texts of all turns, as they were said."""
    return [
        turn["text"]
        for talk in _read()
        for session in talk["sessions"]
        for turn in session["turns"]
        if turn["text"]
    ]


@cache
def _read() -> list[dict[str, Any]]:
    return json.loads(DATA.read_bytes())


def _conversation(one: dict[str, Any], kind: Kind) -> Conversation:
    times = {session["session"]: _time(session["date_time"]) for session in one["sessions"]}
    units = tuple(_turns(one, times) if kind == "turns" else _facts(one, times))
    borne = frozenset(turn for unit in units for turn in unit.bears)
    questions = (
        Question(asked["question"], asked["category"], frozenset(asked["evidence"]) & borne)
        for asked in one["questions"]
        if asked["category"] in CATEGORIES
    )
    end = max(times.values()) + timedelta(days=1)
    return Conversation(one["id"], units, tuple(asked for asked in questions if asked.evidence), end)


def _turns(one: dict[str, Any], times: dict[int, datetime]) -> list[Unit]:
    return [
        Unit(_candidate(turn["id"], _said(turn), session["session"], times), frozenset((turn["id"],)))
        for session in one["sessions"]
        for turn in session["turns"]
    ]


def _said(turn: dict[str, Any]) -> str:
    shown = f" [{turn['image_caption']}]" if turn.get("image_caption") else ""
    return f"{turn['speaker']}: {turn['text']}{shown}"


def _facts(one: dict[str, Any], times: dict[int, datetime]) -> list[Unit]:
    return [
        Unit(_candidate(f"f{number}", fact["text"], fact["session"], times), frozenset(fact["evidence"]))
        for number, fact in enumerate(one["facts"])
    ]


def _candidate(name: str, text: str, session: int, times: dict[int, datetime]) -> FactCandidate:
    said = times[session]
    return FactCandidate(name, SCOPE.key, text, said, said, 1, said, session_ids=(f"i.{session}",))


def _time(written: str) -> datetime:
    """`1:56 pm on 8 May, 2023`."""
    return datetime.strptime(written, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
