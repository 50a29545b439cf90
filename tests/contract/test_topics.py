"""topics.yaml both ways: nothing in it points nowhere, and nothing outside it is left over."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from eden_memory.errors import EdenError
from eden_memory.kafka.topics import (
    KEYS_MOVE,
    BrokerTopic,
    Topic,
    Topics,
    differences,
    load_topics,
    read_topics,
    topics_path,
    unknown_topics,
)
from eden_memory.processors import pipeline
from eden_memory.schemas.events import REGISTRY, Event, MessageRecorded
from eden_memory.settings import KafkaSettings
from eden_memory.stages.stage import Delivery

NOT_PROCESSORS = {"__init__", "pipeline"}
SOURCE = "tailer"
DAY = 86_400_000


@pytest.fixture
def topics() -> Topics:
    return load_topics(KafkaSettings(topic_prefix="p.", group_prefix="g."))  # pyright: ignore[reportCallIssue]


async def no_handler(deliveries: Sequence[Delivery]) -> list[Event]:
    raise NotImplementedError


def as_declared(topic: Topic, **changes: Any) -> BrokerTopic:
    found = BrokerTopic(topic.name, topic.partitions, topic.replication_factor, dict(topic.config))
    return replace(found, **changes)


def test_every_event_has_one_topic_and_every_topic_known_events(topics: Topics) -> None:
    declared = [event for topic in topics.file.topics.values() for event in topic.events]
    assert sorted(declared) == sorted(REGISTRY.events)


def test_every_program_that_is_there_has_a_processor_and_the_other_way_round(
    topics: Topics, pytestconfig: pytest.Config
) -> None:
    files = {path.stem for path in (pytestconfig.rootpath / "processors").glob("*.py")} - NOT_PROCESSORS
    declared = {name.replace("-", "_"): program for name, program in topics.file.programs.items()}
    assert files <= set(declared), "a processor that topics.yaml does not name"
    present = {name for name, program in declared.items() if not program.later}
    assert present == files, "`later: true` is for those that are not there, and only for them"


def test_every_stage_reads_and_publishes_what_topics_yaml_says(topics: Topics) -> None:
    present = {name for name, program in topics.file.programs.items() if not program.later}
    assert set(pipeline.NAMES) == present - {SOURCE}
    for stage in pipeline.stages(dict.fromkeys(pipeline.NAMES, no_handler)):
        assert {topics.topic_of(event) for event in stage.reads} == set(topics.read_by(stage.name))
        declared = {
            event for topic in topics.file.topics.values() for event in topic.producers.get(stage.name, [])
        }
        assert {event.NAME for event in stage.writes} == declared


def test_every_program_reads_or_writes_something(topics: Topics) -> None:
    idle = [name for name in topics.file.programs if not topics.read_by(name) and not topics.written_by(name)]
    assert idle == []


def test_topics_that_one_group_reads_together_have_equal_partitions(topics: Topics) -> None:
    by_name = {topic.name: topic for topic in topics}
    for program in topics.file.programs:
        assert len({by_name[name].partitions for name in topics.read_by(program)}) <= 1


def test_compacted_topics_forget_within_a_day_and_a_half(topics: Topics) -> None:
    for topic in topics:
        if topic.compacted:
            assert int(topic.config["max.compaction.lag.ms"]) == DAY
            assert int(topic.config["segment.ms"]) == DAY // 2
            assert int(topic.config["delete.retention.ms"]) == 30 * DAY


def test_topics_kept_until_consumed_have_no_time_limit(topics: Topics) -> None:
    kept = {name: topic.kept for name, topic in topics.file.topics.items()}
    until_consumed = {topics.name(name) for name, how in kept.items() if how == "until consumed"}
    assert until_consumed == {"p.memory.extractions", "p.memory.candidates", "p.memory.commands"}
    for topic in topics:
        if topic.name in until_consumed:
            assert (topic.config["cleanup.policy"], topic.config["retention.ms"]) == ("compact,delete", "-1")


def test_every_topic_takes_an_event_of_4_mb_and_stamps_it_itself(topics: Topics) -> None:
    for topic in topics:
        assert int(topic.config["max.message.bytes"]) > 4 * 1024 * 1024
        assert topic.config["message.timestamp.type"] == "LogAppendTime"
        assert topic.config["compression.type"] == "producer"


def test_replication_comes_from_the_settings() -> None:
    kafka = KafkaSettings(replication_factor=3, partitions=12)  # pyright: ignore[reportCallIssue]
    for topic in load_topics(kafka):
        assert topic.replication_factor == 3
        assert topic.config["min.insync.replicas"] == "2"
        assert topic.partitions == 12


def test_names_carry_their_prefixes(topics: Topics) -> None:
    assert topics.topic_of("MessageRecorded") == topics.topic_of(MessageRecorded) == "p.chat.messages"
    assert topics.group("atlas-writer") == "g.atlas-writer"
    with pytest.raises(KeyError):
        topics.name("no.such.topic")
    with pytest.raises(KeyError):
        topics.group("no-such-program")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kept": "for a while"}, "for a while"),
        ({"groups": ["atlas-writer", "nobody"]}, "nobody"),
        ({"events": ["FactChanged", "Watermark"]}, "Watermark"),
        ({"producers": {"fact-dedup": []}}, "memory.facts"),
        ({"tombstones": {"of": ["Forgotten"], "by": ["forgetting"], "reasons": ["forgotten"]}}, "Forgotten"),
        ({"tombstones": {"of": ["FactChanged"], "by": ["forgetting"], "reasons": ["bored"]}}, "reasons"),
        ({"partitons": 3}, "partitons"),
    ],
)
def test_a_wrong_topics_yaml_is_refused_by_name(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    file = yaml.safe_load(topics_path().read_text())
    file["topics"]["memory.facts"].update(change)
    path = tmp_path / "topics.yaml"
    path.write_text(yaml.safe_dump(file))
    with pytest.raises(EdenError, match=said):
        read_topics(path)


def test_an_equal_broker_differs_in_nothing_whatever_else_is_set(topics: Topics) -> None:
    found = {topic.name: as_declared(topic, config={**topic.config, "flush.ms": "9"}) for topic in topics}
    assert differences(topics, found) == []


def test_cleanup_policies_compare_in_any_order(topics: Topics) -> None:
    topic = next(topic for topic in topics if topic.config["cleanup.policy"] == "compact,delete")
    other = {**topic.config, "cleanup.policy": "delete, compact"}
    assert differences([topic], {topic.name: as_declared(topic, config=other)}) == []


def test_more_partitions_are_refused_for_every_topic_that_compacts(topics: Topics) -> None:
    for topic in topics:
        (difference,) = differences(
            [topic], {topic.name: as_declared(topic, partitions=topic.partitions - 1)}
        )
        assert difference.refused == (KEYS_MOVE if topic.compacted else None)


def test_fewer_partitions_and_other_replication_are_refused(topics: Topics) -> None:
    topic = next(iter(topics))
    found = as_declared(topic, partitions=topic.partitions + 1, replication_factor=3)
    refused = differences([topic], {topic.name: found})
    assert [one.what for one in refused] == ["partitions", "replication"]
    assert all(one.refused for one in refused)


def test_without_a_prefix_no_topic_of_the_cluster_counts_as_ours(topics: Topics) -> None:
    assert unknown_topics("p.", topics, ["p.old", "others", "p.chat.messages"]) == ["p.old"]
    assert unknown_topics("", topics, ["p.old", "others"]) == []
