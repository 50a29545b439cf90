"""What is taken of a topic: events that can be read, and nothing that stops the reader."""

import pytest

from eden_memory.kafka.record import Headers, Record
from eden_memory.replay.group_progress import recorded_event
from eden_memory.schemas.events import Event
from eden_memory.stages.codec import record_of
from tests.unit.replay.test_reform_planning import NOW, request, window


def record(value: bytes | None, headers: Headers) -> Record:
    return Record("memory.formations", 0, 0, b"a", value, headers, 0)


def topic_of(kind: type[Event]) -> str:
    return kind.NAME


def test_a_request_is_read_as_it_was_published() -> None:
    asked = request(window(1, 1))
    kept = record_of(asked, topic_of, identity="a", source="b", time=NOW, traceparent=None)
    found = recorded_event(record(kept.value, kept.headers))
    assert found is not None
    assert found.event == asked
    assert recorded_event(record(None, kept.headers)) is None, "a tombstone"
    assert recorded_event(record(b"{", kept.headers)) is None, "broken"


@pytest.mark.parametrize("value", [None, b"", b"{}", b"\xff"])
def test_what_no_program_of_ours_wrote_is_left_out(value: bytes | None) -> None:
    assert recorded_event(record(value, ())) is None
