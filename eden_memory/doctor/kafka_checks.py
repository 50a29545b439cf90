"""The Kafka cluster: version, brokers, how long offsets and topics are kept, permissions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

from aiokafka.conn import collect_hosts, create_conn  # pyright: ignore[reportUnknownVariableType]
from aiokafka.protocol.admin import ApiVersionRequest
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, ConfigResource  # pyright: ignore[reportPrivateImportUsage]

from eden_memory.doctor.finding import Finding
from eden_memory.kafka.topic_admin import TopicAdmin, TopicReport
from eden_memory.kafka.topics import TopicDifference, Topics
from eden_memory.settings import KafkaSettings

SECONDS = 10.0
YEAR, WEEK = timedelta(days=365), timedelta(days=7)
DESCRIBE_TRANSACTIONS, FETCH = 65, 1
"""Request kinds that show the version: the first came with 3.0, old forms of the second left with 4.0."""
WORK = (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE)
SHOWN = 3
"""Most topics that a finding names."""


async def broker_version(connection: Mapping[str, Any]) -> Finding:
    """Check the version, which brokers do not report, by the requests that they understand."""
    hosts = cast(
        "list[tuple[str, int, int]]", collect_hosts(str(connection["bootstrap_servers"]), randomize=False)
    )
    host, port, _ = hosts[0]
    options = {name: value for name, value in connection.items() if name != "bootstrap_servers"}
    conn: Any = await create_conn(host, port, request_timeout_ms=int(SECONDS * 1000), **options)
    try:
        answer = await conn.send(ApiVersionRequest())
    finally:
        conn.close()
    return judge_requests({kind: oldest for kind, oldest, _ in answer.api_versions})


def judge_requests(oldest_form: Mapping[int, int]) -> Finding:
    """Return the oldest form that the broker understands, by request kind."""
    if DESCRIBE_TRANSACTIONS not in oldest_form:
        return Finding("Kafka version", "fail", "older than 3.0", "Upgrade to Kafka 3.x or newer.")
    return Finding("Kafka version", "ok", "4.0 or newer" if oldest_form[FETCH] >= 4 else "3.x")


def brokers(admin: Any, kafka: KafkaSettings) -> Finding:
    """Check that there are as many brokers as copies of each partition are configured."""
    return judge_brokers(len(admin.list_topics(timeout=SECONDS).brokers), kafka)


def judge_brokers(count: int, kafka: KafkaSettings) -> Finding:
    """Return the finding for a number of brokers."""
    what = f"{count} broker{'s' if count != 1 else ''}, replication factor {kafka.replication_factor}"
    if kafka.replication_factor > count:
        return Finding("brokers", "fail", what, "Lower EDEN_KAFKA_REPLICATION_FACTOR or add brokers.")
    if count > 1 and kafka.replication_factor == 1:
        return Finding(
            "brokers", "warn", what, "EDEN_KAFKA_REPLICATION_FACTOR=3 survives the loss of a broker."
        )
    return Finding("brokers", "ok", what)


def broker_settings(admin: Any) -> dict[str, str]:
    """Return the settings of one broker, by name."""
    broker = next(iter(admin.list_topics(timeout=SECONDS).brokers))
    resource = ConfigResource(ConfigResource.Type.BROKER, str(broker))
    entries = admin.describe_configs([resource])[resource].result(SECONDS)
    return {name: entry.value for name, entry in entries.items() if entry.value is not None}


def offsets_retention(settings: Mapping[str, str]) -> Finding:
    """A group whose offsets expired would have to begin anew; the program refuses to and stops."""
    name = "offsets.retention.minutes"
    if name not in settings:
        return Finding("offset retention", "warn", "the broker does not tell", f"Set {name} to a year.")
    kept = timedelta(minutes=int(settings[name]))
    hint = f"Set {name}=525600 on every broker (Amazon MSK and others: in the cluster's configuration)."
    what = f"offsets of a stopped group are kept for {kept.days} days"
    if kept < WEEK:
        return Finding("offset retention", "fail", what, hint)
    return Finding("offset retention", "warn" if kept < YEAR else "ok", what, hint if kept < YEAR else "")


def auto_create(settings: Mapping[str, str]) -> Finding:
    """Check automatic topic creation: with it, a misspelt name silently becomes a topic of one partition."""
    if settings.get("auto.create.topics.enable", "false") == "false":
        return Finding("topics made by accident", "ok", "auto.create.topics.enable is off")
    return Finding(
        "topics made by accident",
        "warn",
        "auto.create.topics.enable is on: whoever asks for a topic makes it, with the wrong settings",
        "Set auto.create.topics.enable=false on every broker.",
    )


def permissions(admin: Any, topics: Sequence[str]) -> list[Finding]:
    """Check what the connection's principal may do with the topics; no finding where none exists."""
    allowed = _allowed(admin, topics)
    return [judge_operations(allowed)] if allowed else []


def judge_operations(allowed: Mapping[str, set[AclOperation]]) -> Finding:
    """Return the finding for what is allowed, by topic."""
    lacking = {
        name: [operation.name.lower() for operation in WORK if operation not in may]
        for name, may in allowed.items()
    }
    wrong = [f"{name}: {', '.join(names)}" for name, names in lacking.items() if names]
    if wrong:
        more = f"; and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        return Finding(
            "Kafka permissions",
            "fail",
            f"not allowed: {'; '.join(wrong[:SHOWN])}{more}",
            "Add the ACLs that `eden doctor --rights` prints.",
        )
    return Finding("Kafka permissions", "ok", f"{len(allowed)} topics can be read and written")


def _allowed(admin: Any, topics: Sequence[str]) -> dict[str, set[AclOperation]]:
    """Return what is allowed, as the broker says, by topic: nothing with one that it hides, none that it lacks."""
    asked = admin.describe_topics(TopicCollection(list(topics)), include_authorized_operations=True)
    found = {name: _operations(done) for name, done in asked.items()}
    return {name: may for name, may in found.items() if may is not None}


def _operations(done: Any) -> set[AclOperation] | None:
    try:
        return set(done.result(SECONDS).authorized_operations or ())
    except KafkaException as error:
        code: int = error.args[0].code()
        if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return set()
        raise


def topic_settings(admin: TopicAdmin, topics: Topics, asker: Any) -> list[Finding]:
    """Every topic is there, with the settings declared; nothing where some are hidden: `permissions` speaks of them.

    `asker`: the AdminClient that asks for rights.
    """
    report = admin.report(topics)
    absent = [difference.topic for difference in report.differences if difference.what == "missing"]
    hidden = _allowed(asker, absent).keys() if absent else set[str]()
    seen = [difference for difference in report.differences if difference.topic not in hidden]
    return [] if hidden and not seen else [judge_report(replace(report, differences=seen))]


def judge_report(report: TopicReport) -> Finding:
    """Return the finding for what `eden topics diff` found."""
    absent = [difference for difference in report.differences if difference.what == "missing"]
    others = [difference for difference in report.differences if difference.what != "missing"]
    if absent:
        return Finding(
            "topics", "fail", f"{len(absent)} missing: {_some(absent)}", "Run `eden topics apply`."
        )
    if others:
        hint = "See `eden topics diff`; `eden topics apply` changes what may be changed."
        return Finding("topics", "warn", f"{len(others)} settings differ: {_some(others)}", hint)
    return Finding("topics", "ok", "all as topics.yaml says")


def _some(differences: list[TopicDifference]) -> str:
    names = list(dict.fromkeys(difference.topic for difference in differences))
    return ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
