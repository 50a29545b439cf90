"""A batch of changes → records: coalescing, moves, ends, placeholders, what is left out."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.kafka.record import EVERYWHERE, EVERYWHERE_ELSE, Outgoing
from eden_memory.mongo.changes import ChangeEvent, DocumentPage
from eden_memory.schemas.envelope import Envelope
from eden_memory.source.source_mapping import Mapped
from eden_memory.stages.publishing import partition_for
from tests.unit.source.mappings import BEGAN, change, mapped, mapping, message, recorded, source_mapping
from tests.unit.source.table import PARTITIONS, Table, places


def texts(result: Mapped) -> list[str]:
    return [recorded(one).text for one in result.records]


def test_inserts_are_recorded_in_order_with_the_time_of_their_change() -> None:
    result = mapped(
        *(change(number, "insert", message(f"m{number}", content=str(number))) for number in range(5))
    )
    assert texts(result) == ["0", "1", "2", "3", "4"]
    assert [recorded(one).version for one in result.records] == sorted(
        recorded(one).version for one in result.records
    )
    assert Envelope.of_headers(result.records[3].headers).time == change(3, "insert").time


@pytest.mark.parametrize("touched", [["score"], ["session_idle"], ["content_type", "x.content"], []])
def test_an_update_of_what_does_not_matter_publishes_nothing(touched: list[str]) -> None:
    assert not mapped(change(1, "update", message(), touched=touched)).records


@pytest.mark.parametrize("touched", ["content", "content.0.text", "role", "user_id", "created_at"])
def test_an_update_of_what_matters_is_recorded(touched: str) -> None:
    assert texts(mapped(change(1, "update", message(content="now"), touched=["x", touched]))) == ["now"]


def test_an_update_of_an_outer_field_of_a_mapped_path_matters() -> None:
    from eden_memory.source.message_mapping import FieldPaths

    nested = mapping(FieldPaths("session_id", "role", "body.text", "user_id", "created_at"))
    result = mapped(
        change(1, "update", {**message(), "body": {"text": "now"}}, touched=["body"]), messages=nested
    )
    assert texts(result) == ["now"]


@pytest.mark.parametrize(
    ("operation", "touched", "edited"),
    [
        ("insert", None, False),
        ("update", ["role"], False),
        ("update", ["content.0.text"], True),
        ("replace", None, True),
    ],
)
def test_a_record_tells_when_its_text_was_changed(
    operation: str, touched: list[str] | None, edited: bool
) -> None:
    (one,) = mapped(change(3, operation, message(content="now"), touched=touched)).records[-1:]
    assert recorded(one).edited_at == (change(3, operation).time if edited else None)


def test_an_edit_is_told_though_another_field_is_changed_right_after_it() -> None:
    changes = [
        change(1, "update", message(content="now"), touched=["content"]),
        change(2, "update", message(content="now", role="assistant"), touched=["role"]),
    ]
    assert any(recorded(one).edited_at for one in mapped(*changes).records)


def test_of_several_updates_of_one_message_only_the_last_is_recorded() -> None:
    result = mapped(
        change(1, "insert", message("a", content="0")),
        change(2, "update", message("a", content="1"), touched=["content"]),
        change(3, "update", message("b", content="other"), touched=["content"]),
        change(4, "update", message("a", content="2"), touched=["content"]),
        change(5, "update", message("a", content="2"), touched=["irrelevant"]),
    )
    assert texts(result) == ["0", "other", "2"]


def test_updates_on_both_sides_of_a_delete_are_not_coalesced() -> None:
    result = mapped(
        change(1, "update", message("a", content="1"), touched=["content"]),
        change(2, "delete", identity="a"),
        change(3, "insert", message("a", content="2")),
        change(4, "update", message("a", content="3"), touched=["content"]),
    )
    assert [one.value is None for one in result.records] == [False, True, False, False]


@pytest.mark.parametrize("content", [None, "", [], [{"type": "tool_use"}]])
def test_a_message_without_text_is_counted_and_left_out_until_text_arrives(content: Any) -> None:
    placeholder = message("a", content=content)
    result = mapped(change(1, "insert", placeholder))
    assert (result.records, result.empty) == ([], 1)
    later = mapped(change(2, "update", message("a", content="there"), touched=["content"]))
    assert texts(later) == ["there"]


def test_messages_of_users_without_an_author_are_recorded_and_counted() -> None:
    changes = (
        change(1, "insert", message("m1")),
        change(2, "insert", message("m2", user_id=None)),
        change(3, "insert", message("m3", user_id=None, role="assistant")),
        change(4, "insert", message("m4", user_id=None, content="")),
        change(5, "update", message("m2", user_id=None, content="more"), touched=["content"]),
    )
    result = mapped(*changes)
    assert (len(result.records), result.authorless) == (4, 2)


def test_a_message_that_loses_its_text_is_recorded_as_empty() -> None:
    assert texts(mapped(change(1, "update", message(content=None), touched=["content"]))) == [""]


def test_a_deleted_message_is_ended_in_the_partition_of_its_session() -> None:
    (record,) = mapped(change(1, "delete", identity="a", before=message("a", session_id="s9"))).records
    envelope = Envelope.of_headers(record.headers)
    assert (record.key, record.value, record.partition) == (b"s.a", None, None)
    assert record.ordering_key == b"s.s9"
    assert (envelope.reason, envelope.scope, envelope.subject) == ("deleted", "s.s9", "s.a")
    assert envelope.entity_version == change(1, "delete").version


def test_a_deleted_message_whose_session_is_not_known_is_ended_everywhere() -> None:
    (record,) = mapped(change(1, "delete", identity="a")).records
    envelope = Envelope.of_headers(record.headers)
    assert (record.partition, envelope.scope, envelope.reason) == (EVERYWHERE, None, "deleted")


def test_a_deleted_document_that_could_never_be_recorded_is_not_ended() -> None:
    assert not mapped(change(1, "delete", identity=1.5)).records


@pytest.mark.parametrize(
    "fields",
    [{"deletedAt": BEGAN}, {"deletedAt": True}, {"t": "RM"}, {"content": "[deleted]"}, {"content": " "}],
)
def test_a_message_that_is_marked_as_deleted_is_ended_and_one_that_comes_so_is_left_out(
    fields: dict[str, Any],
) -> None:
    marking = mapping(deleted=("deletedAt", "t=rm", "content=[deleted]", "content="))
    (name,) = fields
    (end,) = mapped(change(1, "update", message() | fields, touched=[name]), messages=marking).records
    assert (end.value, Envelope.of_headers(end.headers).reason) == (None, "deleted")
    assert Envelope.of_headers(end.headers).scope == "s.s1"
    assert not mapped(change(1, "update", message() | fields, touched=["seen"]), messages=marking).records
    assert not mapped(change(1, "insert", message() | fields), messages=marking).records
    restored = message() | {"deletedAt": "false", "t": "", "content": "back"}
    assert texts(mapped(change(2, "update", restored, touched=[name]), messages=marking)) == ["back"]


def test_a_message_that_is_marked_as_deleted_where_it_moved_to_is_ended_where_it_was_too() -> None:
    change_of_both = change(
        1,
        "update",
        message(session_id="s2", deletedAt=BEGAN),
        before=message(),
        touched=["session_id", "deletedAt"],
    )
    records = mapped(change_of_both, messages=mapping(deleted=("deletedAt",))).records
    ends = [Envelope.of_headers(record.headers) for record in records]
    assert [(end.scope, end.reason) for end in ends] == [("s.s1", "moved"), ("s.s2", "deleted")]


def test_a_message_gone_since_its_update_is_left_to_its_delete() -> None:
    lost = ChangeEvent(*change(1, "update", message(), touched=["content"])._replace(document=None))
    assert not mapped(lost).records


def test_a_moved_message_is_ended_where_it_was_and_recorded_where_it_is() -> None:
    ended, record = mapped(
        change(1, "update", message(session_id="s2"), before=message(session_id="s1"), touched=["session_id"])
    ).records
    envelope = Envelope.of_headers(ended.headers)
    assert (ended.value, ended.ordering_key, ended.partition) == (None, b"s.s1", None)
    assert (envelope.reason, envelope.scope) == ("moved", "s.s1")
    assert recorded(record).session_id == "s.s2"


def test_a_moved_message_without_a_pre_image_is_ended_in_every_other_partition() -> None:
    ended, record = mapped(
        change(1, "update", message(session_id="s2"), touched=["session_id", "content"])
    ).records
    assert (ended.value, ended.partition, ended.ordering_key) == (None, EVERYWHERE_ELSE, b"s.s2")
    assert recorded(record).session_id == "s.s2"


def test_a_replaced_message_that_stays_in_its_session_is_not_ended() -> None:
    result = mapped(change(1, "replace", message(content="new"), before=message(content="old")))
    assert texts(result) == ["new"]


@pytest.mark.parametrize("operation", ["drop", "rename"])
def test_the_end_of_the_messages_collection_is_told(operation: str) -> None:
    assert mapped(change(1, operation)).gone == operation
    assert mapped(change(1, operation, collection="memory_inbox")).gone is None


@pytest.mark.parametrize("operation", ["dropDatabase", "invalidate"])
def test_the_end_of_the_database_is_told(operation: str) -> None:
    assert mapped(change(1, operation, collection="")).gone == operation


def test_changes_of_other_kinds_and_collections_are_passed_over() -> None:
    result = mapped(
        change(1, "insert", message(), collection="elsewhere"),
        change(2, "delete", identity="x", collection="memory_inbox"),
        change(3, "update", {"_id": "x"}, touched=["kind"], collection="memory_inbox"),
        change(4, "createIndexes"),
    )
    assert result == Mapped()


def test_one_unusable_document_takes_no_other_down() -> None:
    result = mapped(
        change(1, "insert", message("a")),
        change(2, "insert", message("b", session_id=None)),
        change(3, "insert", message("c")),
    )
    assert [one.key for one in result.records] == [b"s.a", b"s.c"]
    assert [one.document["_id"] for one in result.unmapped] == ["b"]


def test_an_unusable_update_that_may_have_moved_ends_the_message_everywhere() -> None:
    result = mapped(change(1, "update", message(session_id=None), touched=["session_id"]))
    (ended,) = result.records
    assert (ended.value, ended.partition) == (None, EVERYWHERE)
    assert result.unmapped[0].reason == "it has no session_id"


def test_a_page_is_recorded_with_the_version_of_its_read() -> None:
    documents = [message("a", created_at=BEGAN), message("b", content=""), message("c", session_id=None)]
    version = "69a42fc000000009"
    result = source_mapping().map_page(DocumentPage(documents, None, version, BEGAN), "backfill")
    (record,) = result.records
    event = recorded(record)
    assert (event.version, event.origin, event.created_at) == (version, "backfill", BEGAN)
    assert (result.empty, len(result.unmapped)) == (1, 1)


def last_state(records: Sequence[Outgoing]) -> dict[tuple[int, bytes], tuple[str, str]]:
    """What is left of a compacted topic: session and text by partition and key."""
    state: dict[tuple[int, bytes], tuple[str, str]] = {}
    for record in records:
        for partition in places(record):
            if record.value is None:
                state.pop((partition, record.key), None)
            else:
                event = recorded(record)
                state[partition, record.key] = event.session_id, event.text
    return state


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["text", "text", "move", "other", "replace", "delete"]),
        st.sampled_from("ab"),
        st.sampled_from(["1", "2", "3", "10", "21", "33"]),
    ),
    max_size=14,
)


@given(STEPS, st.booleans(), st.lists(st.integers(1, 6), max_size=14))
def test_coalesced_or_not_the_topic_ends_as_the_collection_is(
    steps: list[tuple[str, str, str]], pre_images: bool, cuts: list[int]
) -> None:
    """However the stream is cut into batches: as one, event by event, or anyhow."""
    table = Table(pre_images=pre_images)
    for step in steps:
        table.step(*step)
    events = table.events()
    expected = {
        (partition_for(f"s.{one['session_id']}".encode(), PARTITIONS), f"s.{name}".encode()): (
            f"s.{one['session_id']}",
            one["content"],
        )
        for name, one in table.documents.items()
    }
    one_by_one = [record for event in events for record in mapped(event).records]
    assert last_state(one_by_one) == expected
    assert last_state(mapped(*events).records) == expected
    assert (
        last_state([record for batch in _cut(events, cuts) for record in mapped(*batch).records]) == expected
    )


def _cut(events: list[ChangeEvent], sizes: list[int]) -> Iterator[list[ChangeEvent]]:
    rest = iter(sizes)
    while events:
        size = next(rest, len(events))
        yield events[:size]
        events = events[size:]
