"""Which ids dead letters name: all by which forgetting would find their texts."""

from datetime import UTC, datetime, timedelta

import orjson
import pytest

from eden_memory.forgetting.ledger_rules import concerned
from eden_memory.forgotten import Mark, Marks
from eden_memory.kafka.record import Record
from eden_memory.kafka.topics import read_topics, topics_path
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import REGISTRY, MessageRecorded, decode
from eden_memory.schemas.example_files import examples_of
from eden_memory.stages.dead_letter_ids import TEXTLESS, NamedIds, named_in
from eden_memory.stages.dead_letter_index_store import KEPT
from eden_memory.stages.dead_letters import DeathCause, dead_letter, ids_of_letter, original
from eden_memory.stages.failure_decisions import Failure, Kind

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


@pytest.mark.parametrize(("key", "value"), [(b"k", b"{}"), (None, b"{}"), (b"k", None), (None, None)])
def test_a_dead_letter_has_a_key_of_its_own_and_holds_its_record_unchanged(
    key: bytes | None, value: bytes | None
) -> None:
    cause = DeathCause("fact-dedup", "fact-dedup", Failure(Kind.PERMANENT, "no"), 1, NOON)
    stood = record("FactsProposed", 3, value, key)
    letter = dead_letter(stood, cause)
    assert letter.key == b"chat.messages/3@17/fact-dedup"
    assert letter.value is not None
    kept = original(Record(letter.topic, 0, 0, letter.key, letter.value, letter.headers, 0))
    assert kept == stood
    indexed = ids_of_letter(letter)
    assert (indexed is None) is (value is None)


def test_the_index_keeps_a_letter_as_long_as_its_topic_does() -> None:
    file = read_topics(topics_path())
    kept = file.kept[file.dead.kept]
    assert timedelta(milliseconds=int(kept["retention.ms"]) + int(kept["segment.ms"])) == KEPT
    assert kept["cleanup.policy"] == "compact,delete"
