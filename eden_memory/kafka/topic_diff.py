"""Compares topics.yaml with a broker, and says which differences may be removed. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from eden_memory.kafka.topics import Topic

What = Literal["missing", "config", "partitions", "replication"]

KEYS_MOVE = (
    "it is compacted: with more partitions, keys would move away from their earlier records, which then are "
    "neither replaced nor erased. Re-form into a new namespace with more partitions, or set "
    "EDEN_KAFKA_PARTITIONS to what there is"
)
FEWER = "Kafka cannot take partitions away; set EDEN_KAFKA_PARTITIONS to what there is"
REPLICATION = "replicas are moved by kafka-reassign-partitions, not from here"


@dataclass(frozen=True, slots=True)
class BrokerTopic:
    """A topic as the broker has it; `config` holds effective values."""

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicDifference:
    """One thing that is not as topics.yaml says; `refused` says why it is left as it is."""

    topic: str
    what: What
    wanted: str
    found: str | None = None
    setting: str | None = None
    refused: str | None = None


def differences(topics: Iterable[Topic], found: Mapping[str, BrokerTopic]) -> list[TopicDifference]:
    """Everything that differs, in the order of topics.yaml; settings that it does not name do not count."""
    return [difference for topic in topics for difference in _of_topic(topic, found.get(topic.name))]


def unknown_topics(prefix: str, topics: Iterable[Topic], found: Iterable[str]) -> list[str]:
    """Topics under our prefix that topics.yaml does not name; none where the prefix is empty."""
    ours = {topic.name for topic in topics}
    return sorted(name for name in found if prefix and name.startswith(prefix) and name not in ours)


def _of_topic(topic: Topic, found: BrokerTopic | None) -> Iterator[TopicDifference]:
    if found is None:
        yield TopicDifference(topic.name, "missing", f"{topic.partitions} partitions")
        return
    if found.partitions != topic.partitions:
        yield _partitions(topic, found)
    if found.replication_factor != topic.replication_factor:
        wanted, now = str(topic.replication_factor), str(found.replication_factor)
        yield TopicDifference(topic.name, "replication", wanted, now, refused=REPLICATION)
    for setting, wanted in topic.config.items():
        now = found.config.get(setting)
        if _parts(now) != _parts(wanted):
            yield TopicDifference(topic.name, "config", wanted, now, setting)


def _partitions(topic: Topic, found: BrokerTopic) -> TopicDifference:
    refused = FEWER if found.partitions > topic.partitions else KEYS_MOVE if topic.compacted else None
    return TopicDifference(
        topic.name, "partitions", str(topic.partitions), str(found.partitions), refused=refused
    )


def _parts(value: str | None) -> set[str] | None:
    """A setting's value; lists (`compact,delete`) compare in any order."""
    return None if value is None else {part.strip() for part in value.split(",")}
