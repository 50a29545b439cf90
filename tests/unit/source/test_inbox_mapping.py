"""One document of the inbox → the record that it asks for, on the topic that it is for."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from bson import ObjectId

from eden_memory.kafka.record import Outgoing
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import (
    FactCommanded,
    Forgotten,
    FormationAsked,
    MessageRecorded,
    SessionEnded,
    decode,
)
from eden_memory.schemas.events.base import Event
from eden_memory.schemas.scopes import Scope
from tests.unit.source.mappings import BEGAN, change, mapped

OID = ObjectId("65b2f7a0c3d4e5f60718293a")
SCOPE = Scope.of_session("s.a", "s.s1", ("s.u1",)).model_dump(mode="python")


def carried(document: dict[str, Any]) -> tuple[Outgoing, Event]:
    result = mapped(change(1, "insert", document, collection="memory_inbox"))
    assert result.carried == [document["_id"]]
    (record,) = result.records
    envelope = Envelope.of_headers(record.headers)
    assert record.value is not None
    event = decode(envelope.name, envelope.version, record.value)
    assert record.value == event.json_bytes()
    assert (record.key, record.ordering_key) == (event.key().encode(), event.ordering_key().encode())
    assert envelope.id == f"inbox/o.{OID}"
    return record, event


@pytest.mark.parametrize(
    ("kind", "event", "given", "fields"),
    [
        ("session_ended", SessionEnded, {}, {}),
        ("form_now", FormationAsked, {}, {"if_due": False}),
        ("form_now", FormationAsked, {"if_due": True}, {"if_due": True}),
    ],
)
def test_a_control_takes_its_place_among_the_sessions_messages(
    kind: str, event: type[Event], given: dict[str, bool], fields: dict[str, bool]
) -> None:
    record, found = carried({"_id": OID, "kind": kind, "session_id": 5, "asked_by": "app", **given})
    assert record.topic == "chat.messages"
    assert found == event(
        inbox_id=f"o.{OID}",  # pyright: ignore[reportCallIssue]
        session_id="i.5",  # pyright: ignore[reportCallIssue]
        version=change(1, "insert").version,  # pyright: ignore[reportCallIssue]
        asked_by="app",  # pyright: ignore[reportCallIssue]
        **fields,
    )


def test_an_added_text_goes_the_way_of_a_chat_message() -> None:
    document = {
        "_id": OID,
        "kind": "added_text",
        "session_id": UUID(int=7),
        "text": "x" * 9_000,
        "user_id": "ann",
        "created_at": datetime(2026, 1, 2),
    }
    record, event = carried(document)
    assert isinstance(event, MessageRecorded)
    assert (record.topic, event.origin, event.user_id) == ("chat.messages", "added", "s.ann")
    assert (len(event.text), event.characters, event.truncated) == (8_000, 9_000, True)
    assert event.created_at is not None


def test_a_fact_command_goes_to_the_lane_of_its_scope() -> None:
    document = {"_id": OID, "kind": "fact_command", "scope": SCOPE, "action": "retire", "by": "person"}
    record, event = carried({**document, "fact_id": "f1", "expected_version": 2})
    assert isinstance(event, FactCommanded)
    assert (record.topic, record.ordering_key) == ("memory.candidates", SCOPE["key"].encode())
    assert (event.fact_id, event.expected_version, event.asked_at) == ("f1", 2, change(1, "insert").time)


def test_a_fact_that_is_added_with_a_session_rests_on_the_command_as_on_a_message() -> None:
    asked = change(1, "insert").time
    said_at = asked - timedelta(days=90)
    document = {
        "_id": OID,
        "kind": "fact_command",
        "scope": SCOPE,
        "action": "add",
        "by": "import",
        "text": "x",
    }
    _, event = carried({**document, "said_at": said_at, "session_id": 7})
    assert isinstance(event, FactCommanded)
    assert (event.said_at, event.asked_at) == (said_at, asked)
    (source,) = event.sources
    assert (source.message_id, source.version, source.session_id) == (f"o.{OID}", event.version, "i.7")
    assert (source.time, source.said_at) == (asked, said_at)
    assert source.user_id == "s.u1", "nobody else may see the session's memory"


def test_imported_memory_rests_on_the_messages_that_it_rested_on_elsewhere() -> None:
    said_at = datetime(2026, 1, 2)  # as MongoDB returns it
    there = {"message_id": "s.m1", "version": "0" * 16, "session_id": "s.two", "user_id": "s.ann"}
    named = [{**there, "time": said_at, "said_at": said_at, "participants": 2}]
    _, event = carried(
        {**ADD, "by": "import", "_id": OID, "text": "x", "session_id": "two", "sources": named}
    )
    assert isinstance(event, FactCommanded)
    own, (source,) = event.sources[0], event.sources[1:]
    assert (own.message_id, own.session_id, own.participants) == (f"o.{OID}", "s.two", 2), (
        "shown as the other is"
    )
    assert (source.message_id, source.user_id, source.participants) == ("s.m1", "s.ann", 2)
    assert source.said_at == said_at.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("what", "target", "encoded", "reach"),
    [
        ("message", OID, f"o.{OID}", "for_ever"),
        ("session", "s 1", "s.s%201", "created_up_to"),
        ("user", 5, "i.5", "created_up_to"),
        ("fact", "f1", "f1", "for_ever"),
    ],
)
def test_a_wish_to_forget_reaches_for_ever_but_for_sessions_and_users(
    what: str, target: Any, encoded: str, reach: str
) -> None:
    record, event = carried({"_id": OID, "kind": "forget", "what": what, "target": target})
    assert isinstance(event, Forgotten)
    assert (record.topic, event.kind, event.id) == ("memory.forgotten", what, encoded)
    assert (event.reach, event.because, event.inbox_id) == (reach, "asked", f"o.{OID}")
    assert event.until == (event.forgotten_at if reach == "created_up_to" else None)


SECRET = "a secret"
ADD: dict[str, Any] = {"kind": "fact_command", "scope": SCOPE, "action": "add", "by": "person"}
SOURCE = {"message_id": "s.m1", "version": "0" * 16, "session_id": "s.s1", "time": datetime(2026, 1, 2)}


@pytest.mark.parametrize(
    "document",
    [
        {"kind": "no such kind"},
        {"session_id": "s1"},
        {"kind": "form_now"},
        {"kind": "form_now", "session_id": [SECRET]},
        {"kind": "session_ended", "session_id": "s1", "asked_by": 5},
        {"kind": "session_ended", "session_id": 1.5},
        {"kind": "added_text", "session_id": "s1", "text": {"a": SECRET}},
        {"kind": "added_text", "session_id": "s1", "text": "x", "role": SECRET},
        {"kind": "added_text", "session_id": "s1", "text": "x", "user_id": [SECRET]},
        {"kind": "fact_command", "scope": {**SCOPE, "key": "agent:s.b"}, "action": "add", "by": "person"},
        {"kind": "fact_command", "scope": SCOPE, "action": SECRET, "by": "person"},
        {**ADD, "text": SECRET * 300},
        {**ADD, "text": "x", "reason": SECRET * 300},
        {**ADD, "text": "x", "said_at": datetime(2999, 1, 1, tzinfo=UTC)},
        {**ADD, "text": "x", "said_at": SECRET},
        {**ADD, "text": "x", "session_id": [SECRET]},
        {**ADD, "action": "retire", "fact_id": "f1", "session_id": "s1"},
        {**ADD, "text": "x", "sources": [SOURCE]},
        {"kind": "forget", "what": SECRET, "target": "x"},
        {"kind": "forget", "what": "fact", "target": "no id, " + SECRET},
        {"kind": "forget", "what": "user", "target": [SECRET]},
        {"kind": [SECRET], "session_id": "s1"},
    ],
)
def test_what_asks_nothing_is_carried_to_the_dead_letters(document: dict[str, Any]) -> None:
    result = mapped(change(1, "insert", {"_id": OID, **document}, collection="memory_inbox"))
    assert (result.records, result.carried) == ([], [OID])
    (one,) = result.unmapped
    assert one.collection == "memory_inbox"
    assert one.reason
    assert "secret" not in one.reason


def test_an_inbox_document_whose_own_id_cannot_be_used_stops_nothing() -> None:
    result = mapped(
        change(1, "insert", {"_id": 1.5, "kind": "form_now", "session_id": "s"}, collection="memory_inbox")
    )
    assert (result.records, result.carried, len(result.unmapped)) == ([], [1.5], 1)


def test_inbox_documents_come_after_the_messages_written_before_them() -> None:
    from tests.unit.source.mappings import message

    result = mapped(
        change(1, "insert", message("a")),
        change(2, "insert", {"_id": OID, "kind": "form_now", "session_id": "s1"}, collection="memory_inbox"),
        change(3, "insert", message("b")),
    )
    assert [one.key for one in result.records] == [b"s.a", f"o.{OID}".encode(), b"s.b"]
    assert change(1, "insert").time > BEGAN
