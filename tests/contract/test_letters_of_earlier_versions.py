"""A dead-letter topic is not compacted while it holds letters with the keys of earlier versions."""
# pyright: reportPrivateImportUsage=false

from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer

from eden_memory.doctor.kafka_checks import judge_report
from eden_memory.kafka.connection import admin_config
from eden_memory.kafka.earlier_letters import placed_letters
from eden_memory.kafka.outgoing import NULLS, ORIGINAL_KEY
from eden_memory.kafka.record import Record
from eden_memory.kafka.topic_admin import TopicAdmin, apply_topics
from eden_memory.kafka.topics import load_topics
from eden_memory.settings import Settings
from eden_memory.stages.dead_letters import DeathCause, dead_letter
from eden_memory.stages.failure_decisions import Failure, Kind
from eden_memory.stages.outcome import StoredRecord
from tests.contract.test_topics_on_a_broker import set_config
from tests.servers import wait_until

pytestmark = pytest.mark.servers
NOW = datetime(2026, 3, 3, tzinfo=UTC)


def given_up(topic: str, key: bytes | None, offset: int, group: str) -> StoredRecord:
    cause = DeathCause("atlas-writer", group, Failure(Kind.PERMANENT, "it cannot be"), 1, NOW)
    return dead_letter(Record(topic, 0, offset, key, b"{}", (("ce_id", b"e-1"),), 0), cause)


def as_before(letter: StoredRecord, key: bytes | None) -> tuple[bytes | None, list[tuple[str, bytes | None]]]:
    """A letter as earlier versions wrote it: under its record's key, without the headers that tell it."""
    return key, [pair for pair in letter.headers if pair[0] not in (ORIGINAL_KEY, NULLS)]


def test_letters_under_their_records_key_are_kept_until_they_are_settled(settings: Settings) -> None:
    assert settings.kafka.bootstrap
    config = dict(admin_config(settings.kafka, settings.kafka.bootstrap))
    topics = load_topics(settings.kafka.model_copy(update={"partitions": 1}))
    apply_topics(config, topics)
    admin, facts, tasks = TopicAdmin(config), topics.name("memory.facts"), topics.name("memory.candidates")
    raw: Any = admin._admin  # pyright: ignore[reportPrivateUsage]
    dead = {facts + ".dead", tasks + ".dead"}
    for name in dead:
        set_config(raw, name, cleanup_policy="delete")
    wait_until(lambda: {found.topic for found in admin.report(topics).changeable} == dead, "the old policy")

    new = given_up(facts, b"f", 3, "g1")
    old = [given_up(facts, b"f", 4, "g1"), given_up(facts, b"f", 4, "g2"), given_up(facts, None, 5, "g1")]
    producer: Any = Producer(config)
    producer.produce(facts + ".dead", b"{}", new.key, headers=list(new.headers))
    for letter, key in zip([*old, old[0]], (b"f", b"f", None, b"f"), strict=True):
        named, headers = as_before(letter, key)
        producer.produce(facts + ".dead", b"{}", named, headers=headers)
    assert producer.flush(30) == 0

    report = admin.apply(topics)
    (refused,) = report.refused
    assert (refused.topic, refused.setting, refused.found) == (facts + ".dead", "cleanup.policy", "delete")
    assert "3 dead letters" in str(refused.refused)
    assert "eden dead drop" in judge_report(report).hint
    found = admin.found(topics)
    assert found[facts + ".dead"].config["cleanup.policy"] == "delete"
    assert "compact" in found[tasks + ".dead"].config["cleanup.policy"]

    first, *_, again = [
        letter.id for letter in placed_letters(config, facts + ".dead", 1) if not letter.has_own_key
    ]
    assert "2 dead letters" in str(TopicAdmin(config, {first}).apply(topics).refused[0].refused)
    others = {f"{facts}.dead/0@{offset}" for offset in (2, 3)}
    assert TopicAdmin(config, {again, *others}).apply(topics).refused == []
    assert admin.report(topics).differences == []
