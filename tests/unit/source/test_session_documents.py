"""Sessions of several documents, as one for each of their users."""

from typing import Any

import pytest

from eden_memory.directory import session_document_store
from eden_memory.directory.session_document_store import SessionDocuments, is_switched_off
from eden_memory.settings import SessionsSettings
from eden_memory.source.messages_store import ExcludedSessions

PATHS = SessionsSettings(collection="chats", id="chat", users="user", exclude=("temporary",))
OFF: dict[str, Any] = {"chat": 1, "user": "ana", "memory": False}
EXCLUDED: dict[str, Any] = {"chat": 1, "user": "ben", "temporary": True}
PLAIN: dict[str, Any] = {"chat": 1, "user": "cem"}


@pytest.mark.parametrize("rows", [[OFF, EXCLUDED], [EXCLUDED, OFF], [PLAIN, OFF, EXCLUDED]])
async def test_one_document_that_excludes_a_session_is_enough_whatever_the_others_say(
    rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def grouped(*_: Any) -> dict[str, list[dict[str, Any]]]:
        return {"i.1": rows, "i.2": [PLAIN, PLAIN], "i.3": [PLAIN, OFF]}

    monkeypatch.setattr(session_document_store, "grouped_by_id", grouped)
    database: Any = {"chats": None}
    documents = SessionDocuments(database, PATHS)
    assert await ExcludedSessions(documents).among(["i.1", "i.2", "i.3"]) == {"i.1"}
    merged = await documents.by_id(["i.1"])
    assert is_switched_off(PATHS, merged["i.1"])
    assert merged["i.1"]["user"] == [row["user"] for row in rows]
