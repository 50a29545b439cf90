"""A conversation to play: JSON lines of messages, what happens to some of them later, and what it may cost."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from math import ceil
from pathlib import Path
from typing import Any, Literal, TypeVar

import orjson
import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, field_validator

from eden_memory.errors import EdenError, describe
from eden_memory.models.call_accounts import PerMillion, per_million
from eden_memory.models.catalogue import OFFLINE, chosen, provider_name
from eden_memory.models.question import Role
from eden_memory.mongo.document_fields import text_of
from eden_memory.settings import Settings

INSTALLED = Path(__file__).parent / "example"

EXAMPLE = (INSTALLED if INSTALLED.exists() else Path(__file__).parents[2] / "examples") / "demo.jsonl"
"""Beside this module if installed from a wheel; in a checkout among the examples."""

PEOPLE = ("agents", "users", "groups", "sessions")

HINT = "A line is {session, role, content, user, created_at}; id is optional."


Content = str | list[dict[str, Any]]

Line = TypeVar("Line", bound=BaseModel)


class PlayedMessage(BaseModel):
    """One line of a conversation; `user` is the author's id, if a user wrote it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = ""
    session: str
    role: str
    content: Content
    user: str | None = None
    created_at: datetime

    @field_validator("created_at")
    @classmethod
    def _with_zone(cls, time: datetime) -> datetime:
        """Read a time; one without a zone is in UTC."""
        return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


class PlayedChange(BaseModel):
    """An edit or deletion of a message, made once the message `after` has been written."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    after: str
    change: Literal["edit", "delete"]
    id: str
    content: Content | None = None


_People = TypeAdapter(dict[str, list[dict[str, Any]]])


@dataclass(frozen=True, slots=True)
class PlayedStep:
    """One thing that the application does: write some messages of one session, or one change."""

    messages: Sequence[PlayedMessage] = ()
    change: PlayedChange | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages in the order in which they are written, changes, and the documents of people and sessions."""

    messages: list[PlayedMessage]
    changes: list[PlayedChange]
    people: dict[str, list[dict[str, Any]]]

    def steps(self, together: int = 3) -> Iterator[PlayedStep]:
        """Yield the writes in order: at most `together` messages at once, changes in their place."""
        waiting: list[PlayedMessage] = []
        for message in self.messages:
            if waiting and (len(waiting) == together or waiting[-1].session != message.session):
                yield PlayedStep(waiting)
                waiting = []
            waiting.append(message)
            due = [change for change in self.changes if change.after == message.id]
            if due:
                yield PlayedStep(waiting)
                waiting = []
                yield from (PlayedStep(change=change) for change in due)
        if waiting:
            yield PlayedStep(waiting)


def read_conversation(path: Path = EXAMPLE) -> Conversation:
    """JSON lines with their `.changes.jsonl` and `.people.yaml` if there are, or a ChatGPT export (`.json`).

    An EdenError if it cannot be read.
    """
    if is_export(path):
        exported = [PlayedMessage.model_validate(row) for row in read_export(path)]
        return Conversation(_checked(path, exported), [], _nobody())
    messages = _checked(
        path,
        [_numbered(index, message) for index, message in enumerate(read_lines(path, PlayedMessage, HINT), 1)],
    )
    changes_path, people_path = path.with_suffix(".changes.jsonl"), path.with_suffix(".people.yaml")
    changes = read_lines(changes_path, PlayedChange, HINT) if changes_path.exists() else []
    people = _people(people_path) if people_path.exists() else {}
    known = {message.id for message in messages}
    if strangers := [change.id for change in changes if not {change.id, change.after} <= known]:
        raise EdenError(f"{changes_path}: no message {', '.join(strangers)}", "Correct the ids there.")
    return Conversation(messages, changes, {name: people.get(name, []) for name in PEOPLE})


def _people(path: Path) -> dict[str, Any]:
    """Documents by the collection that they represent."""
    hint = f"It holds lists of documents: {', '.join(PEOPLE)}."
    try:
        found: Any = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
        return _People.validate_python(found or {})
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise EdenError(f"{path} cannot be read: {' '.join(str(error).split())}", hint) from None
    except ValidationError as error:
        first = error.errors()[0]
        raise EdenError(f"{path}: {'.'.join(map(str, first['loc']))} {first['msg']}", hint) from None


def _nobody() -> dict[str, list[dict[str, Any]]]:
    return {name: [] for name in PEOPLE}


def plain_text(content: Content) -> str:
    """Return a message's content as text."""
    return text_of(content)


def _checked(path: Path, messages: list[PlayedMessage]) -> list[PlayedMessage]:
    """Raise EdenError if there are no messages, or two with the same id."""
    if not messages:
        raise EdenError(f"{path} holds no messages", "Name a file of JSON lines.")
    often = [name for name, count in Counter(message.id for message in messages).items() if count > 1]
    if often:
        raise EdenError(f"{path}: several messages have the id {often[0]}", "Ids may be left out.")
    return messages


def _numbered(index: int, message: PlayedMessage) -> PlayedMessage:
    return message if message.id else message.model_copy(update={"id": f"m{index:04d}"})


def read_lines(path: Path, kind: type[Line], hint: str) -> list[Line]:
    """Read JSON lines; EdenError, with the hint, names the first that is not valid."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise EdenError(f"{path} cannot be read: {error.strerror}", "Name a file of JSON lines.") from None
    except UnicodeDecodeError:
        raise EdenError(f"{path} is not valid UTF-8", "Name a file of JSON lines.") from None
    return [_line(path, number, line, kind, hint) for number, line in enumerate(lines, 1) if line.strip()]


def _line(path: Path, number: int, line: str, kind: type[Line], hint: str) -> Line:
    try:
        return kind.model_validate(orjson.loads(line))
    except (orjson.JSONDecodeError, ValidationError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else {"msg": error.msg, "loc": ()}
        what = f"{path}, line {number}: {'.'.join(map(str, first['loc']))} {first['msg']}".replace("  ", " ")
        raise EdenError(what, hint) from None


OWNER = "me"
"""The author of all user messages: an export does not name its owner."""

ROLES = ("user", "assistant", "tool", "system")

Row = dict[str, Any]


def is_export(path: Path) -> bool:
    """Return whether a file is an export: JSON, not JSON lines."""
    return path.suffix == ".json"


def read_export(path: Path) -> list[Row]:
    """Rows of {id, session, role, content, user, created_at}, chats in order of their first message."""
    try:
        chats: Any = orjson.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise EdenError(
            f"{path} cannot be read: {describe(error)}", "Give the conversations.json of an export."
        ) from None
    if not isinstance(chats, list):
        raise EdenError(f"{path} is no list of conversations", "Give the conversations.json of an export.")
    read = [_read(path, number, chat) for number, chat in enumerate(chats, 1) if isinstance(chat, dict)]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    rows = [row for chat in sorted(filter(None, read), key=_first) for row in chat]
    if not rows:
        raise EdenError(f"{path} holds no messages", "Give the conversations.json of an export.")
    return rows


def _read(path: Path, number: int, chat: Mapping[str, Any]) -> list[Row]:
    try:
        return _messages(number, chat)
    except (AttributeError, TypeError, LookupError, ValueError, OverflowError, OSError) as error:
        what = f"{path}: chat {number} is not built as those of an export ({type(error).__name__})"
        raise EdenError(what, "Give the conversations.json of an export.") from None


def _messages(number: int, chat: Mapping[str, Any]) -> list[Row]:
    name = str(chat.get("conversation_id") or chat.get("id") or f"chat-{number}")
    time, rows = chat.get("create_time"), list[Row]()
    for node in _branch(chat):
        message: Mapping[str, Any] = node.get("message") or {}
        author: Mapping[str, Any] = message.get("author") or {}
        role = author.get("role")
        text = _text(message.get("content") or {})
        time = message.get("create_time") or time
        if role in ROLES and text and isinstance(time, int | float):
            rows.append(
                {
                    "id": f"{name}-{len(rows) + 1}",
                    "session": name,
                    "role": role,
                    "content": text,
                    "user": OWNER if role == "user" else None,
                    "created_at": datetime.fromtimestamp(time, UTC),
                }
            )
    return rows


def _branch(chat: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Return the nodes from the first to the last one shown; edits and new answers are other branches."""
    nodes: Mapping[str, Mapping[str, Any]] = chat.get("mapping") or {}
    current: str | None = chat.get("current_node") or next(reversed(list(nodes)), None)
    path: list[Mapping[str, Any]] = []
    seen: set[str] = set()
    while current is not None and current in nodes and current not in seen:
        seen.add(current)
        path.append(nodes[current])
        current = nodes[current].get("parent")
    return reversed(path)


def _text(content: Mapping[str, Any]) -> str:
    parts = content.get("parts") or [content.get("text")]
    return "\n".join(part for part in parts if isinstance(part, str) and part.strip())


def _first(chat: list[Row]) -> datetime:
    found: datetime = chat[0]["created_at"]
    return found


CHARACTERS_PER_TOKEN = 3.5

INSTRUCTIONS = 1_500
"""Tokens of a prompt besides the conversation."""

ANSWER = 1_500
"""Tokens of an answer, thinking included."""

CALLS: Mapping[Role, int] = {"facts": 1, "decisions": 1, "reflections": 1, "consolidation": 3}
"""Of a window; consolidations of up to three scopes."""

SHOWN_THE_CONVERSATION = frozenset[Role]({"facts", "reflections"})


def estimate(conversation: Conversation, settings: Settings) -> Decimal | None:
    """Return US dollars; 0 if only rules are used, None if a price is unknown."""
    counts = Counter(message.session for message in conversation.messages)
    windows = sum(ceil(count / settings.windows.messages) for count in counts.values())
    characters = sum(len(plain_text(message.content)) + 40 for message in conversation.messages)
    costs = [_of_role(role, windows, characters / CHARACTERS_PER_TOKEN, settings) for role in CALLS]
    known = [cost for cost in costs if cost is not None]
    return sum(known, Decimal(0)).quantize(Decimal("0.0001")) if len(known) == len(costs) else None


def _of_role(role: Role, windows: int, said: float, settings: Settings) -> Decimal | None:
    """Estimate all calls of a role at the price of the dearest tier's model."""
    prices = _prices(role, settings)
    calls = windows * CALLS[role]
    asked = calls * INSTRUCTIONS + (said if role in SHOWN_THE_CONVERSATION else 0)
    costs = [
        Decimal(asked) * price.input + Decimal(calls * ANSWER) * price.output
        for price in prices
        if price is not None and price.output is not None
    ]
    return max(costs, default=Decimal(0)) / 1_000_000 if len(costs) == len(prices) else None


def _prices(role: Role, settings: Settings) -> list[PerMillion | None]:
    choices = {chosen(role, tier, settings) for tier in (0, 1)}
    return [
        per_million(provider_name(choice.provider), choice.model or "")
        for choice in choices
        if choice.provider != OFFLINE
    ]
