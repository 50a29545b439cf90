"""All checks, in the order in which a person would fix things."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

from aiokafka.errors import KafkaError
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from packaging.requirements import Requirement
from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import PyMongoError

from eden_memory.doctor import kafka_checks, mapping_checks, mongodb_checks
from eden_memory.doctor import mongodb_checks as source_checks
from eden_memory.doctor.finding import Finding, kafka_commands, mongodb_commands, needed
from eden_memory.errors import EdenError, describe
from eden_memory.kafka.connection import admin_config, client_kwargs
from eden_memory.kafka.topic_admin import TopicAdmin
from eden_memory.kafka.topics import load_topics
from eden_memory.local.servers import endpoints, without_password
from eden_memory.mongo.client import connect
from eden_memory.mongo.refusals import refused_by_mongodb
from eden_memory.names import ORIGINAL
from eden_memory.replay.namespaces.namespace_store import MongoNamespaces
from eden_memory.settings import Settings
from eden_memory.stages.partition_count_store import PartitionCount, PartitionCounts
from eden_memory.tasks import patience

SECONDS = 20.0
"""Seconds for one check; a server that does not answer in time is a finding of its own."""
PERMISSIONS = "MongoDB permissions"

Found = Finding | list[Finding]
Check = tuple[str, Callable[[], Awaitable[Found]]]


@dataclass(frozen=True, slots=True)
class Examination:
    """The findings, and commands that grant the least rights needed."""

    findings: list[Finding]
    mongodb_role: str
    kafka_acls: str


async def examine(settings: Settings, namespaces: Sequence[str] = ()) -> Examination:
    """Look at everything that can be reached; what cannot be is a finding, never an exception.

    `namespaces` are to be made, beside those that there are: rights on their collections are needed too.
    """
    try:
        found = endpoints(settings)
    except EdenError as error:
        return _examination(
            settings, [libraries(), Finding("servers", "fail", error.what, error.hint)], "HOST:9092"
        )
    (of_mongodb, named), of_kafka = await asyncio.gather(
        _mongodb(settings, found.mongodb, namespaces), _kafka(settings, found.kafka, found.mongodb)
    )
    return _examination(settings, [libraries(), *of_mongodb, *of_kafka], found.kafka, named)


async def _namespaces(settings: Settings, client: AsyncMongoClient[dict[str, Any]]) -> list[str]:
    """Return the existing namespaces; none if they cannot be read, which other checks report."""
    try:
        async with asyncio.timeout(SECONDS):
            known = MongoNamespaces(client[settings.mongodb.database], settings.mongodb.prefix)
            return [namespace.id for namespace in await known.all() if namespace.kind != ORIGINAL]
    except (PyMongoError, EdenError, TimeoutError):
        return []


def _examination(
    settings: Settings, findings: list[Finding], bootstrap: str, namespaces: Sequence[str] = ()
) -> Examination:
    acls = kafka_commands(
        settings, bootstrap, list(load_topics(settings.kafka, settings.placement).file.topics)
    )
    return Examination(findings, mongodb_commands(needed(settings, namespaces)), acls)


async def _mongodb(
    settings: Settings, uri: str, namespaces: Sequence[str]
) -> tuple[list[Finding], list[str]]:
    """Return the findings, and the namespaces whose rights were checked: those given and those that exist."""
    try:
        async with connect(settings.mongodb, uri) as client:
            async with asyncio.timeout(SECONDS):
                await client.admin.command("ping")
            named = sorted({*namespaces, *await _namespaces(settings, client)})
            return await _all(_mongodb_checks(settings, client, named)), named
    except (PyMongoError, TimeoutError) as error:
        hint = "Is it running, is EDEN_MONGODB_URI right, may this machine reach it?"
        what = f"{without_password(uri)}: {describe(error)}"
        return [Finding("MongoDB", "fail", what, hint)], sorted(namespaces)


def _mongodb_checks(
    settings: Settings, client: AsyncMongoClient[dict[str, Any]], namespaces: Sequence[str]
) -> list[Check]:
    database, messages = client[settings.source_database], settings.messages
    return [
        ("MongoDB version", lambda: mongodb_checks.server_version(client)),
        ("replica set", lambda: mongodb_checks.replica_set(client)),
        ("clock", lambda: mongodb_checks.clock(client)),
        ("namespace", lambda: mongodb_checks.live_namespace(client, settings)),
        ("sharing", lambda: mongodb_checks.sharing(client, settings)),
        ("rooms", lambda: mongodb_checks.rooms(client, settings)),
        ("oplog window", lambda: mongodb_checks.oplog_window(client)),
        (PERMISSIONS, lambda: mongodb_checks.permissions(client, needed(settings, namespaces))),
        ("messages collection", lambda: source_checks.messages_collection(database, messages)),
        ("source", lambda: source_checks.stored_source(client[settings.mongodb.database], settings)),
        ("field mapping", lambda: mapping_checks.field_mapping(database, settings)),
        ("session users", lambda: mapping_checks.listed_users(database, settings)),
        ("mapping version", lambda: mapping_checks.mapping_version(client, settings)),
        *_collection_checks(settings, database),
    ]


def _collection_checks(settings: Settings, database: AsyncDatabase[dict[str, Any]]) -> Iterator[Check]:
    """Check an existing messages collection; another check reports one that does not exist."""
    messages = settings.messages
    checks: list[Check] = [
        ("backfill index", lambda: source_checks.backfill_index(database, messages)),
        ("session index", lambda: source_checks.session_index(database, settings)),
        ("author index", lambda: source_checks.author_index(database, settings)),
        ("edited messages", lambda: source_checks.edited_messages(messages)),
        ("TTL index", lambda: source_checks.ttl_index(database, messages)),
        ("pre-images", lambda: source_checks.pre_images(database, messages)),
    ]

    async def of_existing(check: Callable[[], Awaitable[Found]]) -> Found:
        return await check() if await source_checks.exists(database, messages.collection) else []

    for name, check in checks:
        yield name, partial(of_existing, check)


async def _kafka(settings: Settings, bootstrap: str, mongodb: str) -> list[Finding]:
    try:
        config = admin_config(settings.kafka, bootstrap)
        connection = client_kwargs(settings.kafka, bootstrap)
        admin: Any = AdminClient({**config, "log_level": 0})
        await asyncio.to_thread(admin.list_topics, timeout=patience(kafka_checks.SECONDS))
    except EdenError as error:
        return [Finding("Kafka", "fail", error.what, error.hint)]
    except KafkaException as error:
        hint = "Is it running, is EDEN_KAFKA_BOOTSTRAP right, may this machine reach it?"
        return [Finding("Kafka", "fail", f"{bootstrap}: {describe(error)}", hint)]
    declared = load_topics(settings.kafka, settings.placement)
    names = [topic.name for topic in declared]
    counts = await _partition_counts(settings, mongodb)
    topics = TopicAdmin(config)
    return await _all(
        [
            ("Kafka version", lambda: kafka_checks.broker_version(connection)),
            ("brokers", lambda: asyncio.to_thread(kafka_checks.brokers, admin, settings.kafka)),
            ("broker settings", lambda: asyncio.to_thread(_broker, admin)),
            (
                "topics",
                lambda: asyncio.to_thread(kafka_checks.topic_settings, topics, declared, admin, counts),
            ),
            ("Kafka permissions", lambda: asyncio.to_thread(kafka_checks.permissions, admin, names)),
        ]
    )


async def _partition_counts(settings: Settings, uri: str) -> dict[str, PartitionCount]:
    """Return the recorded partitions of topics; none if other checks report why."""
    try:
        async with asyncio.timeout(SECONDS), connect(settings.mongodb, uri) as client:
            return await PartitionCounts(client[settings.mongodb.database], settings.names).all()
    except (PyMongoError, EdenError, TimeoutError):
        return {}


def _broker(admin: Any) -> list[Finding]:
    settings = kafka_checks.broker_settings(admin)
    return [kafka_checks.offsets_retention(settings), kafka_checks.auto_create(settings)]


@dataclass(frozen=True, slots=True)
class RefusedCheck(Finding):
    """A check that MongoDB did not allow."""


async def _all(checks: list[Check]) -> list[Finding]:
    """Run the checks; those that MongoDB refuses are left out if missing rights are reported."""
    findings: list[Finding] = []
    for name, check in checks:
        found = await _guarded(name, check)
        findings += found if isinstance(found, list) else [found]
    named = any(finding.check == PERMISSIONS and finding.state == "fail" for finding in findings)
    return [finding for finding in findings if not (named and isinstance(finding, RefusedCheck))]


async def _guarded(name: str, check: Callable[[], Awaitable[Found]]) -> Found:
    """A check that cannot be made is a warning: the user may lack a right that only the check needs."""
    try:
        async with asyncio.timeout(SECONDS):
            return await check()
    except EdenError as error:
        kind = RefusedCheck if refused_by_mongodb(error.__cause__ or error) else Finding
        return kind(name, "warn", f"could not be looked at: {error.what}", error.hint)
    except (PyMongoError, KafkaException, KafkaError, OSError, ValueError) as error:
        kind = RefusedCheck if refused_by_mongodb(error) else Finding
        return kind(name, "warn", f"could not be looked at: {describe(error)}")


DISTRIBUTION = "eden-memory"


def libraries() -> Finding:
    """Check that every required library is installed in a suitable version."""
    wrong = list(_unmet(requires(DISTRIBUTION) or []))
    if wrong:
        return Finding("libraries", "fail", "; ".join(wrong), "`make setup` installs the versions pinned.")
    python = ".".join(map(str, sys.version_info[:3]))
    named = ", ".join(f"{name} {version(name)}" for name in ("pymongo", "aiokafka", "confluent-kafka"))
    return Finding("libraries", "ok", f"Python {python}, {named}")


def _unmet(wanted: list[str]) -> Iterator[str]:
    for requirement in map(Requirement, wanted):
        marker = requirement.marker
        if marker and not any(marker.evaluate({"extra": extra}) for extra in ("", "run")):
            continue
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            yield f"{requirement.name} is not installed"
            continue
        if not requirement.specifier.contains(found, prereleases=True):
            yield f"{requirement.name} is {found}, not {requirement.specifier}"
