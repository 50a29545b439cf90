"""What a change of the application's messages means for the contexts that are kept ready."""

from collections.abc import Mapping
from typing import Any

import pytest

from eden_memory.access.visible import UNNAMED
from eden_memory.context.context_feed import ContextChange, messages_feed
from eden_memory.settings import Settings

SAID_BY_ADA = {"session_id": "one", "user_id": "ada"}
NOT_AN_ID = 1.5
MESSAGE = ContextChange("message", "s.m")


def heard(operation: str, document: Mapping[str, Any] | None = None) -> list[ContextChange]:
    """Return what an event of the stream is reported as."""
    feed = messages_feed(Settings())
    at = {"ns": {"coll": "messages"}, "documentKey": {"_id": "m"}}
    event = {"operationType": operation, **at, "fullDocument": document}
    return list(feed.changed(event))


@pytest.mark.parametrize(
    ("document", "change"),
    [
        (SAID_BY_ADA, ContextChange("author", "s.one", "s.ada")),
        ({"session_id": "one", "user_id": None, "role": "assistant"}, ContextChange("author", "s.one")),
        ({"session_id": "one", "role": "event"}, ContextChange("author", "s.one")),
        ({"session_id": "one", "role": "user"}, ContextChange("author", "s.one", UNNAMED)),
        ({"session_id": "one", "user_id": NOT_AN_ID}, ContextChange("session", "s.one")),
    ],
)
def test_a_new_message_is_its_authors(document: Mapping[str, Any], change: ContextChange) -> None:
    assert heard("insert", document) == [change]


def test_a_document_that_the_tailer_makes_no_message_of_is_nothing() -> None:
    assert heard("insert", {"session_id": NOT_AN_ID, "user_id": "ada"}) == []


def test_an_edit_may_have_changed_the_author_and_what_is_shown() -> None:
    assert heard("update", SAID_BY_ADA) == [ContextChange("author", "s.one", "s.ada"), MESSAGE]


def test_an_edit_may_have_removed_the_author() -> None:
    unnamed = {"session_id": "one", "role": "user"}
    assert heard("update", unnamed) == [ContextChange("author", "s.one", UNNAMED), MESSAGE]


def test_an_edited_answer_may_be_new_in_its_session() -> None:
    assert heard("replace", {"session_id": "one"}) == [ContextChange("author", "s.one"), MESSAGE]


@pytest.mark.parametrize("operation", ["update", "delete"])
def test_a_message_that_is_gone_is_no_longer_shown(operation: str) -> None:
    assert heard(operation) == [MESSAGE]


@pytest.mark.parametrize("operation", ["drop", "rename"])
def test_a_collection_that_is_dropped_or_renamed_changes_everything(operation: str) -> None:
    feed = messages_feed(Settings())
    assert list(feed.changed({"operationType": operation, "ns": {"coll": "messages"}})) == [
        ContextChange("everything")
    ]
