"""Outgoing records are the same, byte for byte, however often they are made."""

from datetime import UTC, datetime

import pytest
from bson import BSON
from bson.codec_options import CodecOptions
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.kafka.record import Record
from eden_memory.names import span_id
from eden_memory.schemas.documents import DeadLetter
from eden_memory.schemas.envelope import Envelope, EnvelopeError
from eden_memory.schemas.events.base import Event
from eden_memory.stages.codec import Encoder, event_id
from eden_memory.stages.dead_letters import Origin, dead_letter, record_of
from eden_memory.stages.failure_decisions import Failure, given_up
from eden_memory.stages.stage import Delivery, Emit, Erase

AWARE = CodecOptions[dict[str, object]](tz_aware=True)
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


class Said(Event):
    """A test's event."""

    text: str

    def key(self) -> str:
        return "k"

    def ordering_key(self) -> str:
        return "lane"

    def subject(self) -> str:
        return "s"


def _delivery(name: str = "cause", traceparent: str | None = "00-trace-parent-01") -> Delivery:
    envelope = Envelope(name, "Said", 1, "test", NOON, "s", "lane", traceparent)
    return Delivery(envelope, Said(text="x"), "in", "k")


ENCODER = Encoder("stage", lambda event: f"topic.{event.NAME}")


@given(st.text(max_size=200))
def test_a_repeat_is_the_same_record(text: str) -> None:
    first, second = (ENCODER.records([Said(text=text)], [_delivery()]) for _ in range(2))
    assert first == second


def test_ids_differ_by_cause_stage_place_and_retry() -> None:
    ids = [event_id("a", "s", 0), event_id("b", "s", 0), event_id("a", "t", 0), event_id("a", "s", 1)]
    ids.append(event_id("a", "s", 0, retry=1))
    assert len(set(ids)) == 5
    assert all(len(one) == 32 for one in ids)


def test_the_envelope_carries_time_and_trace_of_the_cause() -> None:
    causes = [_delivery("one"), _delivery("two")]
    emitted, plain = ENCODER.records([Emit(Said(text="a"), cause=causes[0]), Said(text="b")], causes)
    envelope = Envelope.of_headers(emitted.headers)
    traced = f"00-trace-{span_id('one')}-01"
    assert (envelope.time, envelope.traceparent, envelope.source) == (NOON, traced, "stage")
    assert envelope.id == event_id("one", "stage", 0)
    assert Envelope.of_headers(plain.headers).id == event_id("two", "stage", 1)


def test_a_tombstone_says_what_ended_and_why() -> None:
    gone = Erase(Said, "k", "lane", "s", reason="forgotten", entity_version="7", scope="user:1")
    (record,) = ENCODER.records([gone], [_delivery()])
    envelope = Envelope.of_headers(record.headers)
    assert (record.topic, record.value, record.ordering_key) == ("topic.Said", None, b"lane")
    assert (envelope.reason, envelope.entity_version, envelope.scope) == ("forgotten", "7", "user:1")


@given(st.none() | st.binary(max_size=50), st.none() | st.binary(max_size=50))
def test_a_dead_letter_gives_the_original_back(key: bytes | None, value: bytes | None) -> None:
    headers = (("ce_id", b"1"), ("ce_orderingkey", b"lane"), ("odd", b"\xff"))
    record = Record("in", 3, 17, key, value, headers, 0)
    why, of = given_up("1", Failure.of(ValueError("bad\nline")), 2, NOON), Origin("stage", "stage.trial")
    letter = dead_letter(record, why, of)
    stored_row: dict[str, object] = BSON.encode(letter.stored()).decode(AWARE)
    stored = DeadLetter.model_validate(stored_row, strict=False)
    assert record_of(stored) == record
    assert (letter.error, letter.attempts, letter.member) == ("ValueError", 2, "stage:1")
    assert dead_letter(record_of(stored), why, of) == letter
    assert letter.id != dead_letter(record, why, Origin("stage", "stage")).id


def test_a_time_without_a_zone_is_no_envelope() -> None:
    headers = Envelope("i", "Asked", 1, "test", NOON, "s", "o").headers()
    assert Envelope.of_headers(headers).time == NOON
    zoneless = [(name, b"2026-01-02T12:00:00" if name == "ce_time" else value) for name, value in headers]
    with pytest.raises(EnvelopeError, match="time zone"):
        Envelope.of_headers(zoneless)
