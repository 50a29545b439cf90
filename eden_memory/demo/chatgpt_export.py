"""A ChatGPT export (`conversations.json`) as a conversation to play: the branch of each chat that was last shown."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from eden_memory.error_text import describe
from eden_memory.errors import EdenError

OWNER = "me"
"""The author of all user messages: an export does not name its owner."""
ROLES = ("user", "assistant", "tool", "system")
Row = dict[str, Any]


def is_export(path: Path) -> bool:
    """Whether a file is to be read as an export: JSON, not JSON lines."""
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
    """The nodes from the first to the one last shown; edits and new answers leave other branches beside it."""
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
