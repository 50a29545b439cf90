"""What a merge makes of messages without text, and what it takes for a message."""

import json
from typing import Any

import pytest

from eden_memory.kafka.record import Outgoing, Record
from eden_memory.mongo.ids import encode_id
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import MessageRecorded
from eden_memory.source.backfill import COLUMNS, CONTENT, Known, digest_of
from eden_memory.source.message_mapping import TOPIC
from eden_memory.source.source_mapping import InboxMapping
from eden_memory.stages.codec import Encoder
from eden_memory.stages.stage import Delivery
from eden_memory.windows.trigger_batch import erased
from tests.unit.source.mappings import (
    BEGAN,
    SOURCE,
    VERSION,
    mapping,
    message,
    page,
    recorded,
    source_mapping,
)

WHEN_AND_HOW = {"version", "origin", "edited_at", "mapping", "first_id"}
"""Fields of a record that say nothing of the message itself."""


def known(*records: Outgoing) -> Known:
    found = Known()
    for column in COLUMNS:
        found.add(column, read(*records))
    return found


def read(*records: Outgoing) -> list[Record]:
    """As a topic of one partition holds them."""
    return [
        Record(TOPIC, 0, offset, one.key, one.value, tuple(one.headers), 0)
        for offset, one in enumerate(records)
    ]


def test_a_merge_keeps_messages_without_text_apart() -> None:
    mapped = source_mapping().map_page(page(message("full"), message("bare", content="")), "merge")
    assert [recorded(one).message_id for one in mapped.records] == ["s.full"]
    (emptied,) = mapped.emptied
    assert (recorded(emptied).message_id, recorded(emptied).text) == ("s.bare", "")


def test_a_backfill_leaves_messages_without_text_out() -> None:
    mapped = source_mapping().map_page(page(message("bare", content="")), "backfill")
    assert not mapped.records
    assert not mapped.emptied


def test_what_is_marked_as_deleted_is_left_out_and_a_merge_is_told_of_it() -> None:
    marking = source_mapping(mapping(deleted=("deletedAt",)))
    read_again = page(message("stays"), message("gone", deletedAt=BEGAN))
    mapped = marking.map_page(read_again, "merge")
    assert [recorded(one).message_id for one in mapped.records] == ["s.stays"]
    assert mapped.deleted == [b"s.gone"]


def test_an_unusable_message_without_text_is_told_once() -> None:
    mapped = source_mapping().map_page(page(message("bare", content="", session_id=None)), "merge")
    assert not mapped.emptied
    assert len(mapped.unmapped) <= 1


async def test_an_added_text_is_not_missing_for_want_of_a_document() -> None:
    asked = {"_id": "asked", "kind": "added_text", "session_id": "s1", "text": 'said "origin":"added"'}
    added = InboxMapping(SOURCE, encode_id, 8_000).record(asked, VERSION, BEGAN)
    (said,) = source_mapping().map_page(page(message("said", content='"origin":"added"')), "backfill").records
    topic = known(added, said)
    try:
        assert [place.key for places in topic.unmet() for place in places] == [b"s.said"]
        assert topic.holds(b"s.said")
        assert not topic.holds(b"s.asked")
    finally:
        topic.close()


async def test_a_message_that_is_ended_while_the_topic_is_read_is_of_no_other_source() -> None:
    stands, goes = source_mapping().map_page(page(message("m1"), message("m2")), "backfill").records
    cause = Delivery(Envelope.of_headers(goes.headers), recorded(goes), TOPIC, goes.key.decode())
    encoder = Encoder("formation-trigger", lambda _: TOPIC)
    (end,) = encoder.records([erased(goes.key.decode(), VERSION, "s.s1")], [cause])
    tombstone = Outgoing(
        end.topic, goes.key, None, [(name, value or b"") for name, value in end.headers], b"s.s1"
    )
    found = Known()
    try:
        found.add("seen", read(stands, goes))
        found.add("committed", read(stands, goes, tombstone))
        assert found.by_source() == {SOURCE: 1}
    finally:
        found.close()


async def test_a_merge_knows_where_a_message_stands_that_can_no_longer_be_recorded() -> None:
    stands = source_mapping().map_page(page(message("m1")), "backfill").records
    found = known(*stands)
    unmapped = source_mapping().map_page(page(message("m1", session_id=None)), "merge").unmapped
    key = source_mapping().key_of(unmapped[0].document)
    assert key is not None
    assert key == stands[0].key
    assert found.meet(key) == [0]
    assert not list(found.unmet())
    assert found.meet(b"s.unknown") == []


def digest(**changes: Any) -> bytes:
    """The digest of a user's message, with some fields changed."""
    (stands,) = source_mapping().map_page(page(message("m1")), "backfill").records
    assert stands.value is not None
    return digest_of(json.dumps({**json.loads(stands.value), **changes}).encode())


@pytest.mark.parametrize("field", MessageRecorded.model_fields)
def test_each_field_of_a_message_says_whether_its_change_is_published_again(field: str) -> None:
    assert (field in CONTENT) != (field in WHEN_AND_HOW), "a new field belongs to one of them"
    assert (digest(**{field: "other"}) != digest()) == (field in CONTENT)


def test_a_field_that_a_later_version_adds_publishes_nothing_again() -> None:
    assert digest(added_later=None) == digest(added_later="known now") == digest()


def test_what_an_older_record_lacks_counts_as_null() -> None:
    (stands,) = source_mapping().map_page(page(message("m1")), "backfill").records
    assert stands.value is not None
    older = {name: value for name, value in json.loads(stands.value).items() if name != "created_at"}
    assert digest_of(json.dumps(older).encode()) == digest()
