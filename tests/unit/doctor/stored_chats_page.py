"""Write `docs/reference/stored-chats.md` from the fixtures: `python -m tests.unit.doctor.stored_chats_page`."""

from collections.abc import Iterator
from pathlib import Path

from tests.unit.doctor.stored_chats import EXCHANGES, STORED_CHATS, StoredChat

PAGE = Path(__file__).parents[3] / "docs/reference/stored-chats.md"
HEAD = """\
<!-- Made from tests/unit/doctor/stored_chats.py (`python -m tests.unit.doctor.stored_chats_page`). Do not edit. -->
# Which chats are read

What `eden doctor --init` proposes for the messages of these programs. Each row is a test. Where the document
of a session names its users, messages need no author.

| messages of | session, role, text, author, time | sessions: id, users | not read |
| --- | --- | --- | --- |
"""


def page() -> str:
    """Return the page."""
    return HEAD + "\n".join(_rows()) + "\n"


def _rows() -> Iterator[str]:
    for chat in STORED_CHATS:
        beside = ", ".join(f"`{chat.sessions[name]}`" for name in ("id", "users") if name in chat.sessions)
        yield f"| {chat.program} | {_fields(chat)} | {beside} | {'; '.join(chat.not_read)} |"
    fields = "`list` is `question+answer`: `sessionId`, the field, its text, `userId`, `createdAt`"
    yield f"| {EXCHANGES} | {fields} | | |"


def _fields(chat: StoredChat) -> str:
    names = ("session_id", "role", "content", "user_id", "created_at")
    listed = f"`list` is `{chat.messages['list']}`: " if "list" in chat.messages else ""
    values: list[str | list[str]] = [chat.messages.get(name) or [] for name in names]
    shown = [
        " or ".join(f"`{path}`" for path in ([value] if isinstance(value, str) else value))
        for value in values
    ]
    asks = ". It asks who the agent is" if chat.asks else ""
    return listed + ", ".join(text or "none" for text in shown) + asks


if __name__ == "__main__":
    PAGE.write_text(page())
