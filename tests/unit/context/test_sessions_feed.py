"""What a change of a session's document means where messages name it by another field than `_id`."""

from typing import Any

import pytest

from eden_memory.context.context_feed import ContextChange, feeds
from eden_memory.settings import SessionsSettings, Settings

NAMED = Settings(sessions=SessionsSettings(collection="chats", id="chat.id"))
BEFORE, AFTER = {"chat": {"id": "a"}}, {"chat": {"id": "b"}}
EVERYTHING = [ContextChange("everything")]


@pytest.mark.parametrize(
    ("event", "changes"),
    [
        ({"operationType": "insert", "fullDocument": AFTER}, [ContextChange("session", "s.b")]),
        ({"operationType": "update", "fullDocument": AFTER}, [ContextChange("session", "s.b")]),
        ({"operationType": "update", "fullDocument": AFTER, "moved": True}, EVERYTHING),
        (
            {
                "operationType": "update",
                "fullDocument": AFTER,
                "fullDocumentBeforeChange": BEFORE,
                "moved": True,
            },
            [ContextChange("session", "s.a"), ContextChange("session", "s.b")],
        ),
        ({"operationType": "replace", "fullDocument": AFTER}, EVERYTHING),
        (
            {"operationType": "replace", "fullDocument": AFTER, "fullDocumentBeforeChange": BEFORE},
            [ContextChange("session", "s.a"), ContextChange("session", "s.b")],
        ),
        ({"operationType": "update", "fullDocument": None}, EVERYTHING),
        ({"operationType": "delete"}, EVERYTHING),
        ({"operationType": "delete", "fullDocumentBeforeChange": BEFORE}, [ContextChange("session", "s.a")]),
        ({"operationType": "insert", "fullDocument": {"chat": {}}}, EVERYTHING),
    ],
)
def test_a_document_is_read_for_its_session_and_without_one_anything_may_have_changed(
    event: dict[str, Any], changes: list[ContextChange]
) -> None:
    feed = feeds(NAMED)["/sessions"]
    of = {"ns": {"coll": "chats"}, "documentKey": {"_id": 1}}
    assert list(feed.changed({**of, **event})) == changes
