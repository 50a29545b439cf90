"""A ChatGPT export is read as the person last saw it, and what is no export is said to be none."""

import json
from pathlib import Path
from typing import Any

import pytest

from eden_memory.demo.conversation import read_conversation
from eden_memory.errors import EdenError


def node(parent: str | None, role: str, *parts: Any, time: float | None = 1_700_000_000.0) -> dict[str, Any]:
    content = {"content_type": "text", "parts": list(parts)}
    return {"parent": parent, "message": {"author": {"role": role}, "content": content, "create_time": time}}


def written(folder: Path, chats: Any) -> Path:
    path = folder / "conversations.json"
    path.write_text(json.dumps(chats))
    return path


def test_only_the_branch_that_was_last_shown_is_read(tmp_path: Path) -> None:
    mapping = {
        "root": {"parent": None, "message": None},
        "a": node("root", "user", "first question"),
        "old": node("a", "assistant", "an answer that was thrown away"),
        "new": node("a", "assistant", "the answer that stayed"),
        "picture": node("new", "user", {"asset_pointer": "file"}, "and text"),
        "empty": node("picture", "assistant", ""),
    }
    chat = {"conversation_id": "c-1", "current_node": "empty", "mapping": mapping, "create_time": 1.0}
    messages = read_conversation(written(tmp_path, [chat])).messages
    assert [(one.role, one.content, one.user) for one in messages] == [
        ("user", "first question", "me"),
        ("assistant", "the answer that stayed", None),
        ("user", "and text", "me"),
    ]
    assert {one.session for one in messages} == {"c-1"}
    assert len({one.id for one in messages}) == 3


def test_chats_come_in_the_order_in_which_they_began_and_a_missing_time_is_the_one_before(
    tmp_path: Path,
) -> None:
    late = {"id": "late", "mapping": {"x": node(None, "user", "second", time=200.0)}}
    early = {
        "id": "early",
        "current_node": "y",
        "mapping": {"x": node(None, "user", "one", time=100.0), "y": node("x", "user", "two", time=None)},
    }
    messages = read_conversation(written(tmp_path, [late, early])).messages
    assert [one.content for one in messages] == ["one", "two", "second"]
    assert messages[1].created_at == messages[0].created_at


def test_a_circle_in_the_tree_ends(tmp_path: Path) -> None:
    mapping = {"x": node("y", "user", "one"), "y": node("x", "user", "two")}
    chat = {"id": "c", "current_node": "x", "mapping": mapping}
    assert len(read_conversation(written(tmp_path, [chat])).messages) == 2


@pytest.mark.parametrize("chats", [{}, [], [{"id": "c", "mapping": {}}], "text"])
def test_what_is_no_export_is_said_to_be_none(tmp_path: Path, chats: Any) -> None:
    with pytest.raises(EdenError, match=r"conversations\.json"):
        read_conversation(written(tmp_path, chats))


@pytest.mark.parametrize(
    "node",
    [
        None,
        {"message": "text"},
        {"message": {"author": "user", "content": {"parts": ["hi"]}, "create_time": 5}},
        {"message": {"author": {"role": "user"}, "content": {"parts": 5}, "create_time": 5}},
        {"message": {"author": {"role": "user"}, "content": {"parts": ["hi"]}, "create_time": 1e300}},
    ],
)
def test_a_chat_of_another_shape_is_named(tmp_path: Path, node: Any) -> None:
    with pytest.raises(EdenError, match="chat 1 is not built as those of an export"):
        read_conversation(written(tmp_path, [{"id": "c", "current_node": "x", "mapping": {"x": node}}]))
