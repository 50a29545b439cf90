"""Which ids dead letters name: all by which forgetting would find their texts."""

from datetime import UTC, datetime, timedelta

import orjson
import pytest

from eden_memory.forgetting.ledger_store import concerned
from eden_memory.forgotten import Mark, Marks
from eden_memory.kafka.record import Record
from eden_memory.schemas.documents import GivenUp
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import REGISTRY, MessageRecorded, decode
from eden_memory.schemas.example_files import examples_of
from eden_memory.stages.dead_letters import TEXTLESS, NamedIds, Origin, dead_letter, ids_named, named_in

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
OF_EVENTS = [
    pytest.param(name, event.VERSION, orjson.dumps(payload), id=f"{name}, {title}")
    for name, event in REGISTRY.events.items()
    for title, payload in examples_of(name, event.VERSION).items()
]


def record(name: str, version: int, value: bytes | None, key: bytes | None = b"k") -> Record:
    """A record as it stands in a topic."""
    envelope = Envelope("e1", name, version, "test", NOON, "i.5", "s.c1")
    return Record("chat.messages", 3, 17, key, value, tuple(envelope.headers()), 0)


def named(name: str, version: int, value: bytes) -> NamedIds | None:
    found = record(name, version, value)
    return named_in(b"k", value, found.headers, NOON)


@pytest.mark.parametrize(("name", "version", "value"), OF_EVENTS)
def test_a_letter_names_everything_whose_forgetting_concerns_its_event(
    name: str, version: int, value: bytes
) -> None:
    found = named(name, version, value)
    if name in TEXTLESS:
        assert found is None
        return
    assert found is not None
    asked = concerned([decode(name, version, value)])
    assert {
        pair for pair in asked if pair[0] in ("message", "session", "user", "reflection")
    } <= found.pairs()


def test_a_window_names_no_message_that_its_facts_do_not_rest_on() -> None:
    source = {
        "message_id": "i.1",
        "session_id": "s.c1",
        "user_id": "u.a",
        "version": "5",
        "time": NOON.isoformat(),
    }
    window = {"messages": [{"message_id": "i.2", "version": "1"}], "session_id": "s.c1"}
    found = named("FactsExtracted", 1, orjson.dumps({"window": window, "facts": [{"sources": [source]}]}))
    assert found is not None
    assert found.pairs() == {("message", "i.1"), ("session", "s.c1"), ("user", "u.a")}
    assert found.gone(Marks([Mark("session", "s.c1", "created_up_to", until=NOON)]))
    assert not found.gone(
        Marks([Mark("session", "s.c1", "created_up_to", until=NOON - timedelta(seconds=1))])
    )
    assert not found.gone(Marks([Mark("message", "i.1", "up_to_version", version="4")]))


def test_a_message_that_cannot_be_read_is_named_by_its_headers() -> None:
    found = named(MessageRecorded.NAME, MessageRecorded.VERSION, b"{broken")
    assert found is not None
    assert found.pairs() == {("message", "i.5"), ("session", "s.c1")}


def test_bytes_that_name_nothing_name_nothing() -> None:
    found = named_in(b"", b"\xff\x00", (), NOON)
    assert found == NamedIds()


@pytest.mark.parametrize(("name", "version", "value"), OF_EVENTS)
def test_a_letter_says_what_it_names_as_its_text_does(name: str, version: int, value: bytes) -> None:
    why = GivenUp(member="e1", reason="no", error="Dead", attempts=1, at=NOON)
    letter = dead_letter(record(name, version, value), why, Origin("fact-dedup", "fact-dedup"))
    found = named(name, version, value)
    assert (letter.named is None) is (found is None)
    assert ids_named(letter) == (found or NamedIds())


def test_a_letter_without_a_value_names_nothing() -> None:
    why = GivenUp(member="e1", reason="no", error="Dead", attempts=1, at=NOON)
    letter = dead_letter(record("FactsProposed", 3, None), why, Origin("fact-dedup", "fact-dedup"))
    assert (letter.named, letter.sources) == (None, ())
