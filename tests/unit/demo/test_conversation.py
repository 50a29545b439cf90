"""The demo conversation and what is expected to be remembered of it, held against one another."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from eden_memory.demo.conversation import EXAMPLE, Conversation, plain_text, read_conversation
from eden_memory.errors import EdenError

EXPECTED = cast("dict[str, Any]", yaml.safe_load(EXAMPLE.with_suffix(".expected.yaml").read_text()))
MEMORIES = [*EXPECTED["facts"], *EXPECTED["reflections"]]
ENTRIES = [*MEMORIES, *EXPECTED["must_not"]]


@pytest.fixture(scope="module")
def conversation() -> Conversation:
    return read_conversation()


def scopes_of(entry: dict[str, Any]) -> list[str]:
    return [entry["scope"], *entry.get("or", [])]


def mentions(text: str, groups: list[list[str]]) -> bool:
    return all(any(word.lower() in text.lower() for word in words) for words in groups)


def texts(conversation: Conversation, *, changed: bool) -> dict[str, str]:
    found = {message.id: plain_text(message.content) for message in conversation.messages}
    for change in conversation.changes if changed else []:
        found[change.id] = plain_text(change.content or "")
    return found


def test_it_is_a_conversation_of_several_days_sessions_and_users(conversation: Conversation) -> None:
    assert len(conversation.messages) >= 200
    assert len({message.created_at.date() for message in conversation.messages}) >= 5
    assert len({message.session for message in conversation.messages}) >= 5
    assert len({message.user for message in conversation.messages} - {None}) >= 3
    assert {change.change for change in conversation.changes} == {"edit", "delete"}


def test_messages_stand_in_the_order_in_which_they_were_written(conversation: Conversation) -> None:
    sessions = [message.session for message in conversation.messages]
    assert all(message.created_at.tzinfo for message in conversation.messages)
    for session in dict.fromkeys(sessions):
        times = [message.created_at for message in conversation.messages if message.session == session]
        assert times == sorted(times)


def test_the_session_that_was_said_first_arrives_last(conversation: Conversation) -> None:
    """So the date that it names must not overrule the one that a later session corrected it to."""
    first = min(conversation.messages, key=lambda message: message.created_at)
    *others, last = dict.fromkeys(message.session for message in conversation.messages)
    assert first.session == last == "s-mara-plan"
    times = [message.created_at for message in conversation.messages if message.session in others]
    assert times == sorted(times)


def test_every_session_and_user_is_described(conversation: Conversation) -> None:
    sessions = {one["_id"]: one for one in conversation.people["sessions"]}
    users = {one["_id"] for one in conversation.people["users"]}
    for message in conversation.messages:
        assert message.user is None or message.user in sessions[message.session]["users"]
        assert (message.role == "user") == (message.user is not None)
    assert all(set(session["users"]) <= users for session in sessions.values())
    assert any(len(session["users"]) > 1 for session in sessions.values())


def test_steps_hold_everything_once_and_changes_in_their_place(conversation: Conversation) -> None:
    steps = list(conversation.steps())
    written = [message.id for step in steps for message in step.messages]
    assert written == [message.id for message in conversation.messages]
    assert all(len({message.session for message in step.messages}) <= 1 for step in steps)
    seen: set[str] = set()
    for step in steps:
        seen.update(message.id for message in step.messages)
        if step.change:
            assert {step.change.id, step.change.after} <= seen
    assert sum(step.change is not None for step in steps) == len(conversation.changes)


@pytest.mark.parametrize("entry", MEMORIES, ids=lambda one: one["id"])
def test_an_expected_memory_can_be_found_in_its_messages(
    entry: dict[str, Any], conversation: Conversation
) -> None:
    there = texts(conversation, changed=True)
    assert mentions(" ".join(there[one] for one in entry["from"]), entry["mentions"])
    assert mentions(entry["says"], entry["mentions"])
    assert entry["why"]


@pytest.mark.parametrize("entry", EXPECTED["must_not"], ids=lambda one: one["id"])
def test_what_must_not_be_remembered_was_said(entry: dict[str, Any], conversation: Conversation) -> None:
    there = texts(conversation, changed=False)
    assert mentions(" ".join(there[one] for one in entry["from"]), entry["mentions"])
    assert set(entry["scopes"]) <= {"agent", "group", "user", "session"}


def test_scopes_follow_the_rules(conversation: Conversation) -> None:
    users = {one["_id"] for one in conversation.people["users"]}
    groups = {one["_id"] for one in conversation.people["groups"]}
    for entry in MEMORIES:
        for scope in scopes_of(entry):
            kind, _, name = scope.partition(":")
            assert name in {"agent": {""}, "user": users, "group": groups}.get(kind, {name}), entry["id"]
    assert not [one["id"] for one in EXPECTED["facts"] if one["scope"].startswith("session")]


def test_nothing_of_one_user_is_expected_from_a_session_of_several(conversation: Conversation) -> None:
    shared = {one["_id"] for one in conversation.people["sessions"] if len(one["users"]) > 1}
    session = {message.id: message.session for message in conversation.messages}
    for entry in MEMORIES:
        if all(session[one] in shared for one in entry["from"]):
            assert not [scope for scope in scopes_of(entry) if scope.startswith("user")], entry["id"]


def test_memories_fit_their_limits_and_ids_are_unique() -> None:
    assert all(len(one["says"].split()) <= 30 for one in EXPECTED["facts"])
    assert all(len(one["says"].split()) <= 35 for one in EXPECTED["reflections"])
    assert Counter(one["id"] for one in ENTRIES).most_common(1)[0][1] == 1


def test_no_expected_memory_is_one_that_must_not_be() -> None:
    for entry in MEMORIES:
        for banned in EXPECTED["must_not"]:
            allowed = banned.get("unless", [])
            clash = mentions(entry["says"], banned["mentions"]) and not mentions(
                entry["says"], [allowed or ["\0"]]
            )
            kinds = {scope.partition(":")[0] for scope in scopes_of(entry)}
            assert not (clash and kinds & set(banned["scopes"])), (entry["id"], banned["id"])


def test_a_conversation_of_ones_own_needs_no_ids(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(
        '{"session": "a", "role": "user", "content": "Hi", "user": "ada", "created_at": "2026-01-01T00:00:00Z"}\n'
    )
    mine = read_conversation(path)
    assert [message.id for message in mine.messages] == ["m0001"]
    assert mine.changes == []


def test_a_line_that_is_no_message_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"session": "a", "role": "user", "created_at": "2026-01-01T00:00:00Z"}\n')
    with pytest.raises(EdenError, match=r"mine\.jsonl, line 1: content Field required"):
        read_conversation(path)
    path.write_text("hello\n")
    with pytest.raises(EdenError, match="line 1"):
        read_conversation(path)
    with pytest.raises(EdenError, match="cannot be read"):
        read_conversation(tmp_path / "nothing.jsonl")


def test_lines_end_where_json_lines_do_and_times_without_a_zone_are_utc(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    line = '{"session": "a", "role": "user", "content": "one\u2028two\x85three", "created_at": "2026-01-01T00:00:00"}'
    path.write_text(f"\ufeff{line}\r\n{line}\n", encoding="utf-8")
    first, second = read_conversation(path).messages
    assert first.content == second.content == "one\u2028two\x85three"
    assert first.created_at == datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "holds no messages"),
        (b"\n\n", "holds no messages"),
        (bytes(range(256)), "not valid UTF-8"),
        (b"[" * 100_000, "line 1"),
        (b'{"session": "a", "role": "user", "content": "\\ud800", "created_at": 5}', "line 1"),
        (2 * b'{"id": "x", "session": "a", "role": "user", "content": "b", "created_at": 5}\n', "the id x"),
    ],
)
def test_what_cannot_be_played_is_said(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(content)
    with pytest.raises(EdenError, match=said):
        read_conversation(path)


LINE = '{"session": "s", "role": "user", "content": "hi", "created_at": "2026-01-01T00:00:00Z"}'


@pytest.mark.parametrize(
    ("people", "said"),
    [
        (b"[broken", "cannot be read: while parsing"),
        (b"\xff\xfe", "cannot be read: 'utf-8' codec"),
        (b"- x", "valid dictionary"),
        (b"agents: 5", "agents Input should be a valid list"),
        (b"users: [5]", "users.0 Input should be a valid dictionary"),
    ],
)
def test_people_that_cannot_be_read_are_said_with_the_file(tmp_path: Path, people: bytes, said: str) -> None:
    (tmp_path / "own.jsonl").write_text(LINE)
    (tmp_path / "own.people.yaml").write_bytes(people)
    with pytest.raises(EdenError) as raised:
        read_conversation(tmp_path / "own.jsonl")
    assert "own.people.yaml" in raised.value.what
    assert said in raised.value.what
    assert "agents, users, groups, sessions" in (raised.value.hint or "")


def test_a_file_of_people_may_be_empty(tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_text(LINE)
    (tmp_path / "own.people.yaml").write_text("# nobody yet\n")
    assert not any(read_conversation(tmp_path / "own.jsonl").people.values())
