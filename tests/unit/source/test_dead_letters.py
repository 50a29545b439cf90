"""What cannot be used: the dead letter says which document, why and where from, and nothing that stands in it."""

import json
from typing import Any

import pytest

from eden_memory.mongo.changes import Unreadable
from eden_memory.mongo.lenient_decoding import decode_document
from eden_memory.redaction import Redactor
from eden_memory.schemas.documents import DeadLetter
from eden_memory.source.message_mapping import FieldPaths, MessageMapping
from tests.unit.source.mappings import BEGAN, change, mapped, mapping, message, page, recorded, source_mapping


def dead(document: Any, **where: Any) -> DeadLetter:
    result = mapped(change(1, "insert", document, **where))
    assert not result.records
    (refused,) = result.unmapped
    return source_mapping().dead_letter(refused, BEGAN, "chat.messages")


def test_a_dead_letter_names_the_document_and_holds_none_of_its_content() -> None:
    letter = dead(message(5, session_id=None, content="a secret"))
    assert (letter.topic, json.loads(letter.key or b""), letter.value) == ("chat.messages", {"_id": 5}, None)
    assert "a secret" not in str(letter)


def test_a_dead_letter_says_why_and_where_from() -> None:
    letter = dead(message(session_id=None))
    assert (letter.reason, letter.collection) == ("it has no session_id", "messages")
    assert letter.version == change(1, "insert").version


def test_a_dead_letter_stays_short_whatever_the_id() -> None:
    letters = [dead(message({"nested": "y" * 5_000 + end})) for end in ("a", "b")]
    assert [len(letter.key or b"") for letter in letters] == [1_024, 1_024]
    assert letters[0].id != letters[1].id


def test_a_request_that_cannot_be_used_is_named_alike() -> None:
    letter = dead({"_id": "same", "kind": "no such kind", "text": "a secret"}, collection="memory_inbox")
    assert letter.collection == "memory_inbox"
    assert json.loads(letter.key or b"") == {"_id": "same"}
    assert letter.id != dead(message("same", session_id=None)).id


def test_documents_whose_ids_cannot_be_decoded_have_a_letter_each() -> None:
    raw = [b"\x10\x00\x00\x00\x99_id\x00" + bytes([number]) for number in range(2)]
    first, second, again = (dead(decode_document(one)) for one in (*raw, raw[0]))
    assert first.id == again.id != second.id


class Poisoned(Exception):  # noqa: N818 - what a detector may raise
    pass


class FaultyRedactor(Redactor):
    """Raises for some texts."""

    def __call__(self, text: str) -> str:
        if "poison" in text:
            raise Poisoned(text)
        return text


def poisoned() -> MessageMapping:
    return mapping(redactor=FaultyRedactor())


@pytest.mark.parametrize("operation", ["insert", "update", "replace"])
def test_whatever_a_change_raises_is_its_own_dead_letter(operation: str) -> None:
    result = mapped(
        change(1, "insert", message("a")),
        change(2, operation, message("b", content="poison"), touched=["content"]),
        change(3, "insert", message("c")),
        messages=poisoned(),
    )
    assert [recorded(one).message_id for one in result.records if one.value] == ["s.a", "s.c"]
    (refused,) = result.unmapped
    assert refused.document["_id"] == "b"
    assert refused.reason.startswith("Poisoned")
    assert "poison" not in refused.reason.removeprefix("Poisoned")


@pytest.mark.parametrize("origin", ["backfill", "merge", "reread"])
def test_whatever_a_document_of_a_page_raises_is_its_own_dead_letter(origin: Any) -> None:
    documents = [message("a"), message("b", content="poison"), message("c")]
    result = source_mapping(poisoned()).map_page(page(*documents), origin)
    assert [recorded(one).message_id for one in result.records] == ["s.a", "s.c"]
    assert [refused.document["_id"] for refused in result.unmapped] == ["b"]


def test_a_deletion_ends_its_message_though_its_session_cannot_be_read() -> None:
    strange = {"_id": "a", "session_id": "\ud800"}
    (end,) = mapped(change(1, "delete", identity="a", before=strange)).records
    assert (end.key, end.value) == (b"s.a", None)


@pytest.mark.parametrize("field", FieldPaths._fields)
def test_a_lone_surrogate_costs_its_own_message_alone(field: str) -> None:
    spoiled = message("a", **{field: "\ud800"})
    result = mapped(change(1, "insert", spoiled), change(2, "insert", message("b")))
    assert recorded(result.records[-1]).message_id == "s.b"
    assert len(result.records) + len(result.unmapped) == 2


def test_a_document_that_cannot_be_decoded_is_named_with_the_reason() -> None:
    result = mapped(change(1, "insert", Unreadable("a", "it cannot be decoded: InvalidBSON")))
    assert [refused.reason for refused in result.unmapped] == ["it cannot be decoded: InvalidBSON"]
