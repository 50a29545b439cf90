"""What cannot be used: the dead letter holds the original, the reason and where it came from."""

import json
from typing import Any

from bson import Decimal128, json_util

from eden_memory.source.source_mapping import LONGEST_ORIGINAL
from tests.unit.source.mappings import BEGAN, change, mapped, message, source_mapping


def dead(document: dict[str, Any], original: dict[str, Any] | None = None) -> Any:
    result = mapped(change(1, "insert", document))
    assert not result.records
    (letter,) = source_mapping().dead_letters(result.unmapped, [] if original is None else [original], BEGAN)
    return letter


def headers(letter: Any) -> dict[str, str]:
    return {name: value.decode() for name, value in letter.headers}


def test_a_dead_letter_holds_the_whole_original_as_extended_json() -> None:
    projected = message(5, session_id=None)
    original = {**projected, "unmapped": Decimal128("1.5"), "when": BEGAN}
    letter = dead(projected, original)
    assert (
        json_util.loads(letter.value.decode(), json_options=json_util.JSONOptions(tz_aware=True)) == original
    )
    assert (letter.topic, json.loads(letter.key)) == ("chat.messages.dead", {"_id": 5})


def test_a_dead_letter_of_what_is_gone_holds_what_there_was() -> None:
    assert json.loads(dead(message("gone", session_id=None)).value)["content"] == "hello"


def test_a_dead_letter_says_why_and_where_from() -> None:
    found = headers(dead(message(session_id=None)))
    prefix = "__connect.errors."
    assert found[prefix + "exception.message"] == "it has no session_id"
    assert found[prefix + "collection"] == "messages"
    assert found[prefix + "version"] == change(1, "insert").version
    assert prefix + "cut" not in found


def test_a_dead_letter_of_a_huge_original_is_cut_and_says_so() -> None:
    huge = message(session_id=None, content="x" * 4_000_000)
    letter = dead(huge)
    assert len(letter.value) == LONGEST_ORIGINAL == 3_500_000
    assert int(headers(letter)["__connect.errors.cut"]) > 4_000_000


def test_the_key_of_a_dead_letter_stays_short_whatever_the_id() -> None:
    assert len(dead(message({"nested": "y" * 5_000})).key) == 1_024


def test_an_inbox_document_never_gets_a_messages_original() -> None:
    asked = {"_id": "same", "kind": "no such kind"}
    result = mapped(change(1, "insert", asked, collection="memory_inbox"))
    (letter,) = source_mapping().dead_letters(result.unmapped, [message("same", content="of another")], BEGAN)
    assert letter.value is not None
    assert json.loads(letter.value) == asked
