"""What every event promises: stable bytes, keys that separate what differs, immutability."""

import json

import pytest
from pydantic import ValidationError

from eden_memory.schemas.events import REGISTRY, Forgotten, MessageRecorded, decode
from eden_memory.schemas.events.base import Event
from eden_memory.schemas.example_files import examples_of
from eden_memory.schemas.registry import SchemaViolation

EXAMPLES = [
    pytest.param(decode(name, event.VERSION, json.dumps(payload).encode()), id=f"{name}: {title}")
    for name, event in REGISTRY.events.items()
    for title, payload in examples_of(name, event.VERSION).items()
]


@pytest.mark.parametrize("event", EXAMPLES)
def test_its_bytes_are_compact_complete_and_stable(event: Event) -> None:
    value = event.json_bytes()
    assert decode(event.NAME, event.VERSION, value).json_bytes() == value
    assert list(json.loads(value)) == list(type(event).model_fields)
    assert value == json.dumps(json.loads(value), separators=(",", ":"), ensure_ascii=False).encode()


@pytest.mark.parametrize("event", EXAMPLES)
def test_its_keys_fit_kafka_and_headers(event: Event) -> None:
    for text in (event.key(), event.ordering_key(), event.subject()):
        assert text
        assert text.isascii()
        assert text.isprintable()
        assert " " not in text


@pytest.mark.parametrize("event", EXAMPLES)
def test_it_cannot_be_changed(event: Event) -> None:
    with pytest.raises(ValidationError):
        setattr(event, next(iter(type(event).model_fields)), None)


def test_a_message_has_exactly_the_fields_that_the_tailer_writes() -> None:
    assert list(MessageRecorded.model_fields) == [
        "message_id",
        "session_id",
        "version",
        "role",
        "user_id",
        "text",
        "characters",
        "truncated",
        "created_at",
        "edited_at",
        "origin",
        "mapping",
        "first_id",
    ]


def test_a_deletion_seen_later_never_replaces_forgetting_for_ever() -> None:
    payload = examples_of("Forgotten", 1)["message deleted in the application"]
    seen = decode("Forgotten", 1, json.dumps(payload).encode())
    by_hand = Forgotten.model_validate_json(
        json.dumps({**payload, "reach": "for_ever", "version": None, "because": "asked"})
    )
    assert seen.key() != by_hand.key()
    assert seen.ordering_key() == by_hand.ordering_key()


def test_a_message_a_session_and_a_user_of_one_id_are_forgotten_apart() -> None:
    payload = examples_of("Forgotten", 1)["user until now"]
    keys = {
        Forgotten.model_validate_json(json.dumps({**payload, "kind": kind, "id": "s.same"})).key()
        for kind in ("message", "session", "user")
    }
    assert len(keys) == 3


@pytest.mark.parametrize("change", [{"version": None}, {"reach": "for_ever"}, {"reach": "created_up_to"}])
def test_a_reach_without_its_bound_is_refused(change: dict[str, object]) -> None:
    payload = examples_of("Forgotten", 1)["message deleted in the application"]
    with pytest.raises(ValidationError):
        Forgotten.model_validate_json(json.dumps({**payload, **change}))


@pytest.mark.parametrize(
    ("name", "title", "change", "rule"),
    [
        ("FactCommanded", "edited by a person", {"fact_id": None}, "names"),
        ("FactCommanded", "edited by a person", {"text": "  "}, "text"),
        ("FactCommanded", "expired", {"text": "something"}, "text"),
        ("FactCommanded", "expired", {"action": "add"}, "names no fact"),
        ("FactChanged", "retired by a contradiction", {"retired_because": None}, "reason"),
        ("ReflectionFormed", "of a user", {"origin": "propagated"}, "where from"),
        ("ScopeConsolidated", "third version", {"based_on": 3}, "above"),
    ],
)
def test_fields_that_contradict_each_other_are_refused_with_the_rule(
    name: str, title: str, change: dict[str, object], rule: str
) -> None:
    payload = {**examples_of(name, 1)[title], **change}
    with pytest.raises(SchemaViolation, match=rule):
        decode(name, 1, json.dumps(payload).encode())
