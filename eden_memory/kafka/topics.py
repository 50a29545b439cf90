"""topics.yaml, read and checked: names, partitions, settings, events, groups, and how a broker differs from it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveInt, ValidationError

from eden_memory.errors import EdenError
from eden_memory.names import Placement
from eden_memory.schemas.events import Event
from eden_memory.settings import KafkaSettings

TombstoneReason = Literal["deleted", "missing", "moved", "dropped", "renamed", "opted_out", "forgotten"]
"""`ce_reason` of a tombstone."""
What = Literal["missing", "config", "partitions", "replication"]
KEYS_MOVE = (
    "it is compacted: with more partitions, keys would move away from their earlier records, which then are "
    "neither replaced nor erased. Re-form into a new namespace with more partitions, or set "
    "EDEN_KAFKA_PARTITIONS to what there is"
)
FEWER = (
    "Kafka cannot take partitions away; set EDEN_KAFKA_PARTITIONS to what the topic was created with. "
    "Partitions that were added to it stay unused"
)
REPLICATION = "replicas are moved by kafka-reassign-partitions, not from here"


class _Declared(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, int) else value


Config = dict[str, Annotated[str, BeforeValidator(_as_text)]]
"""Settings of a topic, as the broker spells them."""


class Tombstones(_Declared):
    """Records without a value: which entity they end, who writes them, and why."""

    of: list[str] = Field(min_length=1)
    by: list[str] = Field(min_length=1)
    reasons: list[TombstoneReason] = Field(min_length=1)


class Program(_Declared):
    """A program that writes or reads topics."""

    does: str
    later: bool = False
    """Its processor does not exist yet."""


class Declaration(_Declared):
    """One topic as topics.yaml declares it."""

    description: str
    key: str
    ordering_key: str
    events: list[str] = Field(min_length=1)
    tombstones: Tombstones | None = None
    kept: str
    shared: bool = False
    """The same in every namespace."""
    producers: dict[str, list[str]] = Field(min_length=1)
    """Program → the events that it publishes here."""
    groups: list[str] = Field(min_length=1)

    def writers(self) -> list[str]:
        """Programs that publish events or tombstones here."""
        by = self.tombstones.by if self.tombstones else []
        return [*self.producers, *(program for program in by if program not in self.producers)]


class TopicsFile(_Declared):
    """topics.yaml."""

    config: Config = Field(default_factory=dict[str, str])
    partitions: PositiveInt
    kept: dict[str, Config]
    programs: dict[str, Program]
    topics: dict[str, Declaration]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the broker should have it."""

    name: str
    """With the prefix."""
    partitions: int
    replication_factor: int
    config: Mapping[str, str]
    """Every setting that this program owns; it touches no others."""
    declaration: Declaration

    @property
    def holds(self) -> timedelta:
        """How long its segments may hold a record that has ended, or that is not ended by a key."""
        return self._after("max.compaction.lag.ms" if self.compacted else "retention.ms")

    def _after(self, wait: str) -> timedelta:
        return timedelta(milliseconds=int(self.config[wait]) + int(self.config["segment.ms"]))

    @property
    def compacted(self) -> bool:
        """Whether a key must keep its partition for ever."""
        return "compact" in self.config["cleanup.policy"].split(",")


class Topics:
    """All topics of one namespace, with their prefix; the shared ones among them."""

    def __init__(self, file: TopicsFile, kafka: KafkaSettings, placement: Placement | None = None) -> None:
        self.file = file
        self._placement = placement or Placement()
        self.prefix = kafka.topic_prefix
        self.group_prefix = kafka.group_prefix
        self._kafka = kafka
        self._of_event = {event: name for name, topic in file.topics.items() for event in topic.events}

    def name(self, short: str) -> str:
        """The full name of a declared topic: `chat.messages` with the prefix before it."""
        if short not in self.file.topics:
            raise KeyError(f"{short} is not in topics.yaml")
        return self._placed(short)

    def topic_of(self, event: str | type[Event]) -> str:
        """The full name of the topic that an event is published to, by the event's class or name."""
        return self._placed(self._of_event[event if isinstance(event, str) else event.NAME])

    def group(self, program: str) -> str:
        """The consumer group of a program, with the groups' prefix."""
        if program not in self.file.programs:
            raise KeyError(f"{program} is not in topics.yaml")
        return self.group_prefix + self._placement.group(program)

    def read_by(self, program: str) -> list[str]:
        """Full names of the topics that a program's group reads, in the order of topics.yaml."""
        return [self.name(short) for short, topic in self.file.topics.items() if program in topic.groups]

    def readers(self) -> dict[str, list[str]]:
        """Return the topics (full names) that each consumer group reads; of programs that exist already."""
        running = (name for name, program in self.file.programs.items() if not program.later)
        return {self.group(name): topics for name in running if (topics := self.read_by(name))}

    def written_by(self, program: str) -> list[str]:
        """Full names of the topics that a program writes."""
        return [self.name(short) for short, topic in self.file.topics.items() if program in topic.writers()]

    def __iter__(self) -> Iterator[Topic]:
        """Every topic as the broker should have it."""
        for short, declaration in self.file.topics.items():
            insync = {"min.insync.replicas": str(self._kafka.min_insync_replicas)}
            owned = {**self.file.config, **self.file.kept[declaration.kept], **insync}
            replicas = self._kafka.replication_factor
            yield Topic(self._placed(short), self.partitions, replicas, owned, declaration)

    @property
    def partitions(self) -> int:
        """Partitions that a topic is created with."""
        return self._kafka.partitions or self.file.partitions

    def _placed(self, short: str) -> str:
        return self.prefix + ("" if self.file.topics[short].shared else self._placement.topics) + short


def topics_path() -> Path:
    """Return the path of topics.yaml: in the package; a checkout has a link there to the one at the top."""
    return Path(str(files("eden_memory"))) / "topics.yaml"


def read_topics(path: Path) -> TopicsFile:
    """topics.yaml, checked; an EdenError that names the line or the name that is wrong."""
    try:
        file = TopicsFile.model_validate(yaml.safe_load(path.read_text()))
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise EdenError(f"{path} cannot be read: {error}", "Correct it there.") from None
    wrong = list(_unresolved(file))
    if wrong:
        raise EdenError(f"{path}: {'; '.join(wrong)}", "Correct the names there.")
    return file


def _unresolved(file: TopicsFile) -> Iterator[str]:
    """Return every name in the file that refers to nothing, and every event that two topics claim."""
    events = [event for topic in file.topics.values() for event in topic.events]
    yield from (f"{event} stands in two topics" for event in sorted(set(events)) if events.count(event) > 1)
    for name, topic in file.topics.items():
        if topic.kept not in file.kept:
            yield f"{name}: kept {topic.kept!r} is not declared"
        for program in sorted({*topic.writers(), *topic.groups} - set(file.programs)):
            yield f"{name}: program {program!r} is not declared"
        if {event for events in topic.producers.values() for event in events} != set(topic.events):
            yield f"{name}: the producers' events are not those of the topic"
        for event in sorted(set(topic.tombstones.of if topic.tombstones else ()) - set(topic.events)):
            yield f"{name}: tombstones of {event}, which is not one of its events"


def load_topics(kafka: KafkaSettings, placement: Placement | None = None) -> Topics:
    """The topics of a namespace; without one, of that which the installation began with."""
    return Topics(_own_file(), kafka, placement)


@cache
def _own_file() -> TopicsFile:
    return read_topics(topics_path())


@dataclass(frozen=True, slots=True)
class BrokerTopic:
    """A topic as the broker has it; `config` holds effective values."""

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicDifference:
    """One difference between a topic and topics.yaml; `refused` says why it is left as it is."""

    topic: str
    what: What
    wanted: str
    found: str | None = None
    setting: str | None = None
    refused: str | None = None


def differences(topics: Iterable[Topic], found: Mapping[str, BrokerTopic]) -> list[TopicDifference]:
    """Return all differences in the order of topics.yaml; settings that it does not name do not count."""
    return [difference for topic in topics for difference in _of_topic(topic, found.get(topic.name))]


def unknown_topics(prefix: str, topics: Iterable[Topic], found: Iterable[str]) -> list[str]:
    """Topics under our prefix that topics.yaml does not name; none where the prefix is empty."""
    ours = {topic.name for topic in topics}
    return sorted(name for name in found if prefix and name.startswith(prefix) and name not in ours)


def _of_topic(topic: Topic, found: BrokerTopic | None) -> Iterator[TopicDifference]:
    if found is None:
        yield TopicDifference(
            topic.name, "missing", f"{topic.partitions} partition{'s' * (topic.partitions != 1)}"
        )
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
