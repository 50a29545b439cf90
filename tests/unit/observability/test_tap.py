"""What `eden tap` picks and shows, as pure functions."""

import json
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from eden_memory.kafka.record import Record
from eden_memory.observability.tapping import Filter, Tapped, as_json, harmless, line
from eden_memory.schemas.envelope import Envelope

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def _record(value: bytes | None, **fields: str) -> Tapped:
    about = {"subject": "f1", "ordering_key": "user:s.a:s.u"} | fields
    envelope = Envelope("1", "FactChanged", 1, "test", NOON, **about)
    return Tapped.of(Record("t", 0, 1, b"f1@1", value, tuple(envelope.headers()), 0))


@given(st.text())
def test_harmless_text_stands_on_one_line_and_holds_no_control_character(text: str) -> None:
    shown = harmless(text)
    assert len(shown.splitlines()) <= 1
    assert not any(ord(one) < 32 or 127 <= ord(one) < 160 for one in shown)
    assert harmless(shown) == shown


@given(st.binary(max_size=60))
def test_any_value_can_be_shown(value: bytes) -> None:
    record = _record(value)
    json.dumps(as_json(record))
    assert all(len(one.splitlines()) <= 1 for one in line(record))


def test_a_tombstone_is_found_by_the_scope_that_it_names() -> None:
    gone = _record(None, ordering_key="o", scope="user:s.a:s.b", reason="forgotten")
    assert Filter(scopes=("user:s.a:*",), types=("tombstone",)).matches(gone)
    assert not Filter(scopes=("user:s.b:*",)).matches(gone)
    assert not Filter(types=("tombstone",)).matches(_record(b"{}"))


def test_times_are_the_records_own() -> None:
    assert Filter(since=NOON).matches(_record(b"{}"))
    assert not Filter(until=NOON).matches(_record(b"{}"))
