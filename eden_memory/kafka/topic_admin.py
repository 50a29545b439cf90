"""topics.yaml and a real broker: look, create, alter what is ours, and delete only what was named."""
# confluent-kafka imports its public names into `admin` without listing them as exports.
# pyright: reportPrivateImportUsage=false

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from eden_memory.errors import EdenError
from eden_memory.kafka.topic_diff import Difference, Found, differences, unknown_topics
from eden_memory.kafka.topics import Topics
from eden_memory.own_process import patience

TIMEOUT = 30.0
"""Seconds that a broker may take for one request."""

CONNECT = 10.0
"""Seconds until a broker that does not answer at all counts as away."""


@dataclass(frozen=True, slots=True)
class Report:
    """How a broker's topics differ (`eden topics diff`), or differed before they were changed (`apply`)."""

    differences: Sequence[Difference]
    unknown: Sequence[str]
    """Topics under our prefix that topics.yaml does not name."""

    @property
    def refused(self) -> Sequence[Difference]:
        """What is left as it is, with the reason."""
        return [one for one in self.differences if one.refused]

    @property
    def changeable(self) -> Sequence[Difference]:
        """What `apply` changes."""
        return [one for one in self.differences if not one.refused]


class TopicAdmin:
    """One cluster's topics; calls block, and raise an EdenError when Kafka refuses or does not answer.

    `config` is that of confluent-kafka's AdminClient (`admin_config`).
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._where = str(config["bootstrap.servers"])
        # What cannot be reached is raised as an EdenError; librdkafka's own log lines would only repeat it.
        self._admin: Any = AdminClient({**config, "log_level": 0})

    def found(self, topics: Topics) -> dict[str, Found]:
        """Those of the topics that are there, with every setting's effective value."""
        return self._described(topics, self._listed())

    def names(self, prefix: str = "") -> list[str]:
        """Names of the topics that begin with `prefix`, Kafka's own left out."""
        return sorted(one for one in self._listed() if one.startswith(prefix) and not one.startswith("__"))

    def report(self, topics: Topics) -> Report:
        """What differs now."""
        listed = self._listed()
        unknown = unknown_topics(topics.prefix, topics, listed)
        return Report(differences(topics, self._described(topics, listed)), unknown)

    def apply(self, topics: Topics) -> Report:
        """Create, alter and grow what may be, and wait until the broker shows it; what differed before."""
        report = self.report(topics)
        self._create(topics, [one.topic for one in report.changeable if one.what == "missing"])
        self._alter([one for one in report.changeable if one.what == "config"])
        self._grow([one for one in report.changeable if one.what == "partitions"])
        if report.changeable:
            self._until(lambda: not self.report(topics).changeable, "the changes to show")
        return report

    def delete(self, names: Sequence[str]) -> None:
        """Delete these topics, and wait until they are gone."""
        self._all(self._admin.delete_topics(list(names), operation_timeout=TIMEOUT) if names else {})
        self._until(lambda: not set(names) & set(self._listed()), "the topics to be gone")

    def _create(self, topics: Topics, names: Sequence[str]) -> None:
        new = [
            NewTopic(
                topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                config=dict(topic.config),
            )
            for topic in topics
            if topic.name in names
        ]
        if new:
            self._all(self._admin.create_topics(new, operation_timeout=TIMEOUT))
            self._until(lambda: self._are_led(names), "leaders of new topics")

    def _alter(self, wanted: Sequence[Difference]) -> None:
        by_topic: dict[str, list[ConfigEntry]] = {}
        for one in wanted:
            entry = ConfigEntry(str(one.setting), one.wanted, incremental_operation=AlterConfigOpType.SET)
            by_topic.setdefault(one.topic, []).append(entry)
        resources = [
            ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
            for name, entries in by_topic.items()
        ]
        self._all(self._admin.incremental_alter_configs(resources) if resources else {})

    def _grow(self, wanted: Sequence[Difference]) -> None:
        new = [NewPartitions(one.topic, int(one.wanted)) for one in wanted]
        self._all(self._admin.create_partitions(new, operation_timeout=TIMEOUT) if new else {})

    def _described(self, topics: Topics, listed: Mapping[str, Any]) -> dict[str, Found]:
        resources = [ConfigResource(ResourceType.TOPIC, one.name) for one in topics if one.name in listed]
        asked: Mapping[ConfigResource, Future[Any]] = (
            self._admin.describe_configs(resources) if resources else {}
        )
        configs = {one.name: self._answer(answer) for one, answer in asked.items()}
        return {name: _found(name, listed[name], config) for name, config in configs.items()}

    def _all(self, answers: Mapping[Any, "Future[Any]"]) -> None:
        for answer in answers.values():
            self._answer(answer)

    def _answer(self, answer: "Future[Any]") -> Any:
        return self._asked(lambda: answer.result(TIMEOUT))

    def _asked(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except (KafkaException, TimeoutError) as error:
            raise EdenError(
                f"Kafka at {self._where}: {_said(error)}",
                "Check that it runs, the connection settings (EDEN_KAFKA_*), and that this user may do it "
                "(`eden doctor` prints the ACLs).",
            ) from error

    def _listed(self) -> Mapping[str, Any]:
        return self._asked(lambda: self._admin.list_topics(timeout=patience(CONNECT))).topics

    def _are_led(self, names: Iterable[str]) -> bool:
        listed = self._listed()
        return all(_led(listed.get(name)) for name in names)

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        end = monotonic() + TIMEOUT
        while not holds():
            if monotonic() > end:
                raise EdenError(f"Kafka at {self._where}: waited {TIMEOUT:.0f} s for {what}", "Try again.")
            sleep(0.05)


def apply_topics(config: Mapping[str, Any], topics: Topics) -> Report:
    """Bring a broker's topics to what topics.yaml says; safe to repeat. `config` as of `admin_config`."""
    return TopicAdmin(config).apply(topics)


def _found(name: str, metadata: Any, config: Mapping[str, ConfigEntry]) -> Found:
    replicas = {len(partition.replicas) for partition in metadata.partitions.values()}
    values = {key: entry.value for key, entry in config.items() if entry.value is not None}
    return Found(name, len(metadata.partitions), min(replicas, default=0), values)


def _led(metadata: Any) -> bool:
    partitions = metadata.partitions.values() if metadata else ()
    return bool(partitions) and all(partition.leader >= 0 for partition in partitions)


def _said(error: Exception) -> str:
    if isinstance(error, KafkaException):
        cause: Any = error.args[0]
        return str(cause.str())
    return f"no answer within {TIMEOUT:.0f} s"
