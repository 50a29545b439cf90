"""topics.yaml and a real broker: compare, create, alter what is ours, and delete only what was named."""

# confluent-kafka imports its public names into `admin` without listing them as exports.
# pyright: reportPrivateImportUsage=false

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from eden_memory.errors import EdenError, ServerAway
from eden_memory.kafka.topics import BrokerTopic, TopicDifference, Topics, differences, unknown_topics
from eden_memory.logs import Awaited
from eden_memory.tasks import patience

TIMEOUT = 30.0
"""Seconds that a broker may take for one request."""

CONNECT = 10.0
"""Seconds until a broker that does not answer at all counts as away."""
ANSWER_SECONDS = 0.8
"""Seconds for one attempt: connecting continues meanwhile, however slow the broker is."""
HINT = "Check EDEN_KAFKA_BOOTSTRAP, or start the local servers with `eden up`."
SASL_HINT = "Check EDEN_KAFKA_SECURITY_PROTOCOL and EDEN_KAFKA_SASL_MECHANISM, _USERNAME and _PASSWORD."


@dataclass(frozen=True, slots=True)
class TopicReport:
    """How a broker's topics differ (`eden topics diff`), or differed before they were changed (`apply`)."""

    differences: Sequence[TopicDifference]
    unknown: Sequence[str]
    """Topics under our prefix that topics.yaml does not name."""

    @property
    def refused(self) -> Sequence[TopicDifference]:
        """The differences that `apply` leaves, with the reason."""
        return [difference for difference in self.differences if difference.refused]

    @property
    def changeable(self) -> Sequence[TopicDifference]:
        """The differences that `apply` removes."""
        return [difference for difference in self.differences if not difference.refused]


class TopicAdmin:
    """One cluster's topics; calls block, and raise ServerAway when Kafka refuses or does not answer.

    `config` is that of confluent-kafka's AdminClient (`admin_config`).
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._where = str(config["bootstrap.servers"])
        # An unreachable broker is raised as an EdenError; librdkafka's own log lines would only repeat it.
        self._admin: Any = self._asked(lambda: AdminClient({**config, "log_level": 0}))

    def found(self, topics: Topics) -> dict[str, BrokerTopic]:
        """Return those of the topics that exist, with every setting's effective value."""
        return self._described(topics, self._listed())

    def standing(self, topics: Topics) -> dict[str, BrokerTopic]:
        """Like `found`, but without settings where this user may not read them."""
        listed = self._listed()
        there = [topic.name for topic in topics if topic.name in listed]
        try:
            configs = self._configs(there)
        except ServerAway:
            configs = {name: dict[str, ConfigEntry]() for name in there}
        return {name: _found(name, listed[name], configs[name]) for name in there}

    def names(self, prefix: str = "") -> list[str]:
        """Names of the topics that begin with `prefix`, Kafka's own left out."""
        return sorted(
            name for name in self._listed() if name.startswith(prefix) and not name.startswith("__")
        )

    def ids(self, names: Collection[str]) -> dict[str, str]:
        """Return Kafka's id of each of these topics that is there; a topic that is created anew has another one."""
        listed = self._listed() if names else ()
        there = [name for name in names if name in listed]
        return self.identities(there) if there else {}

    def report(self, topics: Topics) -> TopicReport:
        """Compare the broker with topics.yaml."""
        listed = self._listed()
        unknown = unknown_topics(topics.prefix, topics, listed)
        found = self._described(topics, listed)
        return TopicReport(differences(topics, found), unknown)

    def apply(self, topics: Topics) -> TopicReport:
        """Create, alter and grow the topics, and wait until the broker shows it; return what differed before."""
        report = self.report(topics)
        self._create(
            topics,
            [difference.topic for difference in report.changeable if difference.what == "missing"],
        )
        self._alter([difference for difference in report.changeable if difference.what == "config"])
        self._grow([difference for difference in report.changeable if difference.what == "partitions"])
        if report.changeable:
            self._until(lambda: not self.report(topics).changeable, "the changes to show")
        return report

    def delete(self, names: Sequence[str]) -> None:
        """Delete these topics, and wait until they are gone."""
        self._all(self._admin.delete_topics(list(names), operation_timeout=TIMEOUT) if names else {})
        self._until(lambda: not set(names) & set(self._listed()), "the topics to be gone")

    def overrides(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return the settings that topics have of their own, not from their broker."""
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG
        return {
            name: {
                key: str(entry.value) for key, entry in config.items() if ConfigSource(entry.source) is own
            }
            for name, config in self._configs(names).items()
        }

    def identities(self, names: Sequence[str]) -> dict[str, str]:
        """Return the ids that Kafka gave topics; one of the same name that is made later has another."""
        answers = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=TIMEOUT)
        return {name: str(self._answer(answer).topic_id) for name, answer in answers.items()}

    def configure(self, settings: Mapping[str, Mapping[str, str | None]]) -> None:
        """Set these settings of topics; None restores the broker's default."""
        resources = [
            ConfigResource(
                ResourceType.TOPIC, name, incremental_configs=[_entry(*setting) for setting in wanted.items()]
            )
            for name, wanted in settings.items()
        ]
        self._all(self._admin.incremental_alter_configs(resources) if resources else {})

    def remove_records(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Remove the records of topics' partitions below these offsets."""
        places = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
        self._all(self._admin.delete_records(places, operation_timeout=TIMEOUT))

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

    def _alter(self, wanted: Sequence[TopicDifference]) -> None:
        by_topic: dict[str, dict[str, str | None]] = {}
        for difference in wanted:
            by_topic.setdefault(difference.topic, {})[str(difference.setting)] = difference.wanted
        self.configure(by_topic)

    def _grow(self, wanted: Sequence[TopicDifference]) -> None:
        new = [NewPartitions(difference.topic, int(difference.wanted)) for difference in wanted]
        self._all(self._admin.create_partitions(new, operation_timeout=TIMEOUT) if new else {})

    def _described(self, topics: Topics, listed: Mapping[str, Any]) -> dict[str, BrokerTopic]:
        configs = self._configs([topic.name for topic in topics if topic.name in listed])
        return {name: _found(name, listed[name], config) for name, config in configs.items()}

    def _configs(self, names: Iterable[str]) -> dict[str, Mapping[str, ConfigEntry]]:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        asked: Mapping[ConfigResource, Future[Any]] = (
            self._admin.describe_configs(resources) if resources else {}
        )
        return {resource.name: self._answer(answer) for resource, answer in asked.items()}

    def _all(self, answers: Mapping[Any, "Future[Any]"]) -> None:
        for answer in answers.values():
            self._answer(answer)

    def _answer(self, answer: "Future[Any]") -> Any:
        return self._asked(lambda: answer.result(TIMEOUT))

    def _asked(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except (KafkaException, TimeoutError) as error:
            raise ServerAway(
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
                raise ServerAway(f"Kafka at {self._where}: waited {TIMEOUT:.0f} s for {what}", "Try again.")
            sleep(0.05)


def apply_topics(config: Mapping[str, Any], topics: Topics) -> TopicReport:
    """Bring a broker's topics to what topics.yaml says; safe to repeat. `config` as of `admin_config`."""
    return TopicAdmin(config).apply(topics)


def _entry(name: str, value: str | None) -> ConfigEntry:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    return ConfigEntry(name, value, incremental_operation=operation)


def _found(name: str, metadata: Any, config: Mapping[str, ConfigEntry]) -> BrokerTopic:
    replicas = {len(partition.replicas) for partition in metadata.partitions.values()}
    values = {key: entry.value for key, entry in config.items() if entry.value is not None}
    return BrokerTopic(name, len(metadata.partitions), min(replicas, default=0), values)


def _led(metadata: Any) -> bool:
    partitions = metadata.partitions.values() if metadata else ()
    return bool(partitions) and all(partition.leader >= 0 for partition in partitions)


def _said(error: Exception) -> str:
    if isinstance(error, KafkaException):
        cause: Any = error.args[0]
        return str(cause.str())
    return f"no answer within {TIMEOUT:.0f} s"


async def topics_exist(config: Mapping[str, Any], wanted: Iterable[str], patience: float = 60.0) -> None:
    """Return when the broker has all topics; an EdenError that names the missing ones.

    A broker that does not answer is asked again for `patience` seconds: at the start of a deployment everything
    comes up at once. One that does not accept the user is asked once.
    """
    missing = sorted(set(wanted) - set(await _topics(config, patience)))
    if missing:
        raise EdenError(
            f"Kafka has no topic {', '.join(missing)}", "Create what is missing: eden topics apply"
        )


async def _topics(config: Mapping[str, Any], patience: float) -> Iterable[str]:
    server, loop = f"Kafka at {config['bootstrap.servers']}", asyncio.get_running_loop()
    until, reasons, awaited = loop.time() + patience, list[LibraryError](), Awaited(server, HINT)
    # This function reports errors itself: librdkafka's log lines would repeat them at every attempt to connect.
    options: dict[str, Any] = {**config, "log_level": 0, "error_cb": reasons.append}
    admin: Any = AdminClient(options)
    async with awaited.said():
        while True:
            try:
                return (await asyncio.to_thread(admin.list_topics, timeout=ANSWER_SECONDS)).topics
            except KafkaException as error:
                admin.poll(0)
                reason = _reason(reasons) or error.args[0].str()
                if any(kafka_error.code() == LibraryError._AUTHENTICATION for kafka_error in reasons):
                    raise ServerAway(f"{server} refuses: {reason}", SASL_HINT) from None
                if loop.time() >= until:
                    raise ServerAway(f"{server} does not answer: {reason}", HINT) from None
                awaited.away(reason)
                reasons.clear()
                await asyncio.sleep(ANSWER_SECONDS)


def _reason(reasons: Iterable[LibraryError]) -> str:
    """Return why the last attempt to connect failed: without the address, and how long it took."""
    said = [reason.str() for reason in reasons if reason.code() != LibraryError._ALL_BROKERS_DOWN]
    return said[-1].partition(": ")[2].partition(" (after")[0] if said else ""
