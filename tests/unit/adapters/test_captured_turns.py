"""What a coding agent's hook gives: which messages it holds, and what is refused."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from eden_memory.adapters.coding_agents import captured
from eden_memory.adapters.conversation import ConversationMemory
from eden_memory.errors import Invalid, NotAnId


def said(**event: Any) -> list[tuple[str, str]]:
    return [(one.role, one.text) for one in captured(json.dumps({"session_id": "s", **event})).said]


def test_a_notification_of_a_turns_end_holds_both_sides() -> None:
    event = {
        "type": "agent-turn-complete",
        "thread-id": "t",
        "turn-id": "7",
        "input-messages": ["Use tabs.", 5],
        "last-assistant-message": "Done.",
    }
    turn = captured(json.dumps(event))
    assert turn.session == "t"
    assert [(one.role, one.text) for one in turn.said] == [("user", "Use tabs."), ("assistant", "Done.")]
    assert all(one.name for one in turn.said)
    assert captured(json.dumps(event)) == turn


def test_the_last_answer_of_a_transcript_is_the_one_with_a_text(tmp_path: Path) -> None:
    transcript = tmp_path / "t.jsonl"
    call: dict[str, Any] = {
        "type": "assistant",
        "message": {"content": [{"type": "tool_use", "name": "ls", "input": {}}]},
    }
    answer = {"type": "assistant", "uuid": "1", "message": {"content": [{"type": "text", "text": "Done."}]}}
    transcript.write_text("\n".join(("{broken", json.dumps(answer), json.dumps(call), "[]", "null")))
    assert said(hook_event_name="Stop", transcript_path=str(transcript)) == [("assistant", "Done.")]
    assert said(hook_event_name="Stop", last_assistant_message="Given.", transcript_path="/no") == [
        ("assistant", "Given.")
    ]


@pytest.mark.parametrize(
    "event",
    [
        {"hook_event_name": "PreToolUse"},
        {"hook_event_name": "UserPromptSubmit", "prompt": "  "},
        {"hook_event_name": "UserPromptSubmit", "prompt": 5},
        {"hook_event_name": "Stop", "transcript_path": "/no/such/file"},
        {"hook_event_name": "Stop"},
    ],
)
def test_what_holds_no_message_is_passed_over(event: dict[str, Any]) -> None:
    assert said(**event) == []


@pytest.mark.parametrize("text", ["", "[]", "5", "{", "[" * 10_000, '{"prompt": "a"}', '{"session_id": 5}'])
def test_what_is_no_hooks_json_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(Invalid, match="hook"):
        captured(text)


@pytest.mark.parametrize("session", [None, {"$ne": 1}])
def test_messages_of_no_session_are_never_read_or_deleted(session: Any) -> None:
    service: Any = MagicMock()
    with pytest.raises(NotAnId):
        _ = ConversationMemory(service, session).messages
