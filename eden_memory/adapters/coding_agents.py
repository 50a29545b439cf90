"""Coding agents: a hook that writes each turn into the chat collection (`eden capture`).

It reads the JSON that an agent gives to its hooks: `UserPromptSubmit` with a prompt, `Stop` with the answer or the
path of a transcript (Claude Code, Codex), and Codex' notification at the end of a turn.
"""

import json
from collections import deque
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, cast

from eden_memory.adapters.conversation import TurnMessage
from eden_memory.errors import Invalid
from eden_memory.mongo.document_fields import Unusable, text_of
from eden_memory.settings import Role

LAST_LINES = 200
"""Lines of a transcript in which the answer is looked for, from its end."""


class CapturedTurn(NamedTuple):
    """The messages that a hook reports, and the session that they belong to."""

    session: str
    said: list[TurnMessage]


def captured(text: str) -> CapturedTurn:
    """Read a hook's JSON; no messages if it reports something else. Raises Invalid."""
    try:
        event: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise Invalid(
            "the input is not a JSON object", "Let the agent's hook call this, or pipe its JSON here."
        ) from None
    if not isinstance(event, dict):
        raise Invalid(
            "the input is not a JSON object", "Let the agent's hook call this, or pipe its JSON here."
        )
    fields = {name.replace("-", "_"): value for name, value in cast("dict[str, Any]", event).items()}
    session = fields.get("session_id") or fields.get("thread_id")
    if not isinstance(session, str):
        raise Invalid("the hook's JSON names no session", "It needs session_id, or thread-id.")
    return CapturedTurn(session, list(_said(fields)))


def _said(fields: Mapping[str, Any]) -> Iterator[TurnMessage]:
    turn = str(fields.get("turn_id") or "")
    match fields.get("hook_event_name") or fields.get("type"):
        case "UserPromptSubmit":
            yield from _message("user", fields.get("prompt"), turn)
        case "Stop":
            yield from _answer(fields, turn)
        case "agent-turn-complete":
            asked = fields.get("input_messages")
            for prompt in cast("list[Any]", asked) if isinstance(asked, list) else []:
                yield from _message("user", prompt, turn)
            yield from _message("assistant", fields.get("last_assistant_message"), turn)
        case _:
            return


def _answer(fields: Mapping[str, Any], turn: str) -> Iterator[TurnMessage]:
    given, transcript = fields.get("last_assistant_message"), fields.get("transcript_path")
    if isinstance(given, str):
        yield from _message("assistant", given, turn)
    elif isinstance(transcript, str):
        yield from _last_answer(Path(transcript))


def _last_answer(transcript: Path) -> Iterator[TurnMessage]:
    """Read the newest text of the assistant; none if the file cannot be read."""
    try:
        with transcript.expanduser().open(encoding="utf-8", errors="replace") as lines:
            newest = list(deque(lines, LAST_LINES))
    except OSError:
        return
    for line in reversed(newest):
        if (found := next(_of_line(line), None)) is not None:
            yield found
            return


def _of_line(line: str) -> Iterator[TurnMessage]:
    try:
        entry: Any = json.loads(line)
        if entry["type"] == "assistant":
            yield from _message("assistant", text_of(entry["message"]["content"]), str(entry.get("uuid", "")))
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError, Unusable):
        return


def _message(role: Role, text: Any, turn: str) -> Iterator[TurnMessage]:
    """Return a message that is not empty; one that names its turn is stored once, however often it is reported."""
    if isinstance(text, str) and text.strip():
        digest = blake2b("\0".join((turn, role, text)).encode(errors="replace"), digest_size=12)
        yield TurnMessage(role, text, digest.hexdigest() if turn else "")
