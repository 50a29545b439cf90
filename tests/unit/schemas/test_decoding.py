"""Reading events: tolerant of what is new, strict in what is known, upcast step by step, silent about content."""

import json
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.schemas.events import REGISTRY, MessageRecorded, decode
from eden_memory.schemas.events.base import Event
from eden_memory.schemas.example_files import examples_of
from eden_memory.schemas.fields import Part
from eden_memory.schemas.registry import Registry, SchemaViolation

SECRET = "my-card-number-4111"
EXAMPLE = json.loads(json.dumps(examples_of("MessageRecorded", 1)["user"]))


def message(**changes: Any) -> bytes:
    return json.dumps({**EXAMPLE, **changes}).encode()


def test_unknown_fields_are_ignored_at_every_depth() -> None:
    payload = examples_of("FactChanged", 1)["edited by a person"]
    more = json.loads(json.dumps(payload))
    more["from_the_future"] = {"a": 1}
    more["scope"]["colour"] = "blue"
    more["sources"][0]["weight"] = 3
    assert decode("FactChanged", 1, json.dumps(more).encode()) == decode(
        "FactChanged", 1, json.dumps(payload).encode()
    )


def test_unknown_fields_are_refused_when_written() -> None:
    with pytest.raises(ValueError, match="extra_forbidden"):
        MessageRecorded.model_validate({**EXAMPLE, "created_at": None, "mood": "fine"})


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe",
        message(role=SECRET),
        message(session_id=SECRET + " "),
        message(characters="81"),
        message(truncated="yes"),
        message(version="1"),
        message(created_at=SECRET),
        json.dumps({key: value for key, value in EXAMPLE.items() if key != "text"}).encode(),
        json.dumps({**EXAMPLE, SECRET: 1, "role": 1}).encode(),
    ],
)
def test_a_violation_is_said_without_content(value: bytes) -> None:
    with pytest.raises(SchemaViolation) as caught:
        decode("MessageRecorded", 1, value)
    assert str(caught.value).startswith("MessageRecorded v1: ")
    assert SECRET not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("name", "version", "said"),
    [("Nonsense", 1, "unknown"), ("Watermark", 0, "v0"), ("Watermark", 99, "v1 to v1")],
)
def test_an_unknown_type_or_version_is_named(name: str, version: int, said: str) -> None:
    with pytest.raises(SchemaViolation, match=said):
        decode(name, version, b"{}")


@given(st.binary(max_size=200))
def test_no_bytes_do_anything_but_decode_or_violate(value: bytes) -> None:
    for name in REGISTRY.events:
        try:
            decode(name, 1, value)
        except SchemaViolation:
            continue


class Money(Part):
    cents: int
    currency: str


class Paid(Event):
    """v1: {"amount": "3.50"}; v2: {"cents": 350, "currency": "EUR"}; v3: {"price": {…}, "note": …}."""

    VERSION: ClassVar[int] = 3

    price: Money
    note: str | None

    def key(self) -> str:
        return "k"

    ordering_key = subject = key


def to_cents(old: dict[str, Any]) -> dict[str, Any]:
    whole, _, rest = old["amount"].partition(".")
    return {"cents": int(whole) * 100 + int(rest), "currency": "EUR"}


def to_price(old: dict[str, Any]) -> dict[str, Any]:
    return {"price": {"cents": old["cents"], "currency": old["currency"]}, "note": None}


JUNK = st.recursive(st.none() | st.integers() | st.text(), st.lists)
PAID = Registry([Paid], {("Paid", 1): to_cents, ("Paid", 2): to_price})


@given(st.integers(min_value=0, max_value=10**6), st.dictionaries(st.text(), st.integers(), max_size=3))
def test_every_old_version_reads_as_the_newest(cents: int, unknown: dict[str, int]) -> None:
    by_version: dict[int, dict[str, Any]] = {
        1: {"amount": f"{cents // 100}.{cents % 100:02d}"},
        2: {"cents": cents, "currency": "EUR"},
        3: {"price": {"cents": cents, "currency": "EUR"}, "note": None},
    }
    expected = Paid(price=Money(cents=cents, currency="EUR"), note=None)
    for version, payload in by_version.items():
        assert PAID.decode("Paid", version, json.dumps({**unknown, **payload}).encode()) == expected


@given(st.sampled_from([1, 2]), JUNK)
def test_what_an_upcast_cannot_read_is_a_violation(version: int, payload: Any) -> None:
    for value in (payload, {"amount": payload}, {"cents": "x", "currency": payload}):
        with pytest.raises(SchemaViolation):
            PAID.decode("Paid", version, json.dumps(value).encode())


def test_a_version_without_its_upcast_is_noticed_at_once() -> None:
    with pytest.raises(ValueError, match="Paid"):
        Registry([Paid], {("Paid", 1): to_cents})
    with pytest.raises(ValueError, match="Paid"):
        Registry([Paid], {("Paid", 1): to_cents, ("Paid", 2): to_price, ("Paid", 3): to_price})


def test_an_event_that_stands_twice_replaces_no_upcasts() -> None:
    with pytest.raises(ValueError, match="Paid stands twice"):
        Registry([Paid, Paid], {("Paid", 1): to_cents, ("Paid", 2): to_price})
