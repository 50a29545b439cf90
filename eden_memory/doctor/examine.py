"""All checks, in the order in which a person would fix things."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

from aiokafka.errors import KafkaError
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from packaging.requirements import Requirement
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import PyMongoError

from eden_memory.assembly.needs import NEEDS, TOPICS, MongoClient, Need
from eden_memory.doctor import kafka_checks, mapping_checks, mongodb_checks
from eden_memory.doctor import mongodb_checks as source_checks
from eden_memory.doctor.finding import Finding, kafka_commands, mongodb_commands, needed
from eden_memory.errors import EdenError, ServerAway, describe
from eden_memory.kafka.connection import admin_config, client_kwargs
from eden_memory.kafka.topic_admin import TopicAdmin
from eden_memory.kafka.topics import load_topics
from eden_memory.local.servers import endpoints, without_password
from eden_memory.models.catalogue import LOCAL_MODELS, embedder_of
from eden_memory.mongo.client import connect
from eden_memory.mongo.refusals import refused_by_mongodb
from eden_memory.names import ORIGINAL, Placement
from eden_memory.replay.namespaces.namespace_store import MongoLive, MongoNamespaces
from eden_memory.settings import Settings
from eden_memory.tasks import patience

SECONDS = 20.0
"""Seconds for one check; a server that does not answer in time is a finding of its own."""
SHOWN = 3
"""Lines of a refusal that a finding repeats."""
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
    # A check is made once: where a server is away, that is the finding.
    settings = settings.model_copy(update={"run": settings.run.model_copy(update={"start_seconds": 0.0})})
    try:
        async with connect(found.mongodb) as client:
            async with asyncio.timeout(SECONDS):
                await client.admin.command("ping")
            known, placement = await _namespaces(settings, client)
            live, named = settings.placed(placement), sorted({*namespaces, *known})
            of_mongodb, of_kafka = await asyncio.gather(
                _all(_mongodb_checks(live, client, named)), _kafka(live, found.kafka, client)
            )
    except (PyMongoError, TimeoutError) as error:
        hint = "Is it running, is EDEN_MONGODB_URI right, may this machine reach it?"
        what = f"{without_password(found.mongodb)}: {describe(error)}"
        of_mongodb, named = [Finding("MongoDB", "fail", what, hint)], sorted(namespaces)
        of_kafka = await _kafka(settings, found.kafka, None)
    return _examination(settings, [libraries(), *of_mongodb, *of_kafka], found.kafka, named)


async def _namespaces(settings: Settings, client: MongoClient) -> tuple[list[str], Placement]:
    """Return the existing namespaces and the live one; none and the first if other checks report why."""
    database, prefix = client[settings.mongodb.database], settings.mongodb.prefix
    try:
        async with asyncio.timeout(SECONDS):
            known = await MongoNamespaces(database, prefix).all()
            live = await MongoLive(database, prefix).placement()
            return [namespace.id for namespace in known if namespace.kind != ORIGINAL], live
    except (PyMongoError, EdenError, TimeoutError):
        return [], Placement()


def _examination(
    settings: Settings, findings: list[Finding], bootstrap: str, namespaces: Sequence[str] = ()
) -> Examination:
    acls = kafka_commands(
        settings, bootstrap, list(load_topics(settings.kafka, settings.placement).file.topics)
    )
    return Examination(findings, mongodb_commands(needed(settings, namespaces)), acls)


def _mongodb_checks(settings: Settings, client: MongoClient, namespaces: Sequence[str]) -> list[Check]:
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
        ("deletions", lambda: source_checks.deletions(client, settings)),
        ("field mapping", lambda: mapping_checks.field_mapping(database, settings)),
        ("sessions", lambda: mapping_checks.described(client, settings)),
        ("mapping version", lambda: mapping_checks.mapping_version(client, settings)),
        *_collection_checks(settings, database),
        ("dead letters", lambda: mongodb_checks.dead_letters(client, settings)),
        *((need.name, partial(_needed, need, settings, client)) for need in NEEDS if need is not TOPICS),
        ("embedder answers", lambda: _embedding(settings)),
    ]


async def _needed(need: Need, settings: Settings, client: MongoClient) -> Finding:
    """What `eden run` refuses to start without."""
    try:
        return Finding(need.name, "ok", await need.demand(settings, client))
    except EdenError as refusal:
        if isinstance(refusal, ServerAway) or ((cause := refusal.__cause__) and refused_by_mongodb(cause)):
            raise
        first, *more = refusal.what.splitlines()
        listed = f" {'; '.join(map(str.strip, more[:SHOWN]))}" + (", …" if len(more) > SHOWN else "")
        what = f"`eden run` refuses this: {first}{listed if more else ''}"
        return Finding(need.name, "fail", what, refusal.hint)


async def _embedding(settings: Settings) -> list[Finding]:
    """Whether an embedder elsewhere answers: without it stages pause. One on this machine is a need."""
    if embedder_of(settings) in LOCAL_MODELS:
        return []
    from eden_memory.models.model_check import check_embedder  # noqa: PLC0415 - the SDKs take seconds to load

    checked = await check_embedder(settings, most_seconds=SECONDS)
    name = f"{checked.provider} {checked.model}"
    if checked.problem is None:
        return [Finding("embedder answers", "ok", f"{name}, {checked.supports}")]
    hint = "`eden models check` tries it again. Until it answers, stages that need vectors pause."
    return [Finding("embedder answers", "fail", f"{name}: {checked.problem}", hint)]


def _collection_checks(settings: Settings, database: AsyncDatabase[dict[str, Any]]) -> Iterator[Check]:
    """Check an existing messages collection; another check reports one that does not exist."""
    messages = settings.messages
    checks: list[Check] = [
        ("backfill index", lambda: source_checks.backfill_index(database, messages)),
        ("session index", lambda: source_checks.session_index(database, settings)),
        ("session documents", lambda: source_checks.joined_index(database, settings)),
        ("author index", lambda: source_checks.author_index(database, settings)),
        ("edited messages", lambda: source_checks.edited_messages(messages)),
        ("TTL index", lambda: source_checks.ttl_index(database, messages)),
        ("pre-images", lambda: source_checks.pre_images(database, messages)),
    ]

    async def of_existing(check: Callable[[], Awaitable[Found]]) -> Found:
        return await check() if await source_checks.exists(database, messages.collection) else []

    for name, check in checks:
        yield name, partial(of_existing, check)


async def _kafka(settings: Settings, bootstrap: str, client: MongoClient | None) -> list[Finding]:
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
    topics = TopicAdmin(config)

    async def of_topics() -> list[Finding]:
        found = await asyncio.to_thread(kafka_checks.topic_settings, topics, declared, admin)
        if client is None or not found or found[0].state == "fail":
            return found
        with suppress(EdenError):  # MongoDB is away or refuses: its own checks say so
            refused = await _needed(TOPICS, settings, client)
            return found if refused.state == "ok" else [refused]
        return found

    return await _all(
        [
            ("Kafka version", lambda: kafka_checks.broker_version(connection)),
            ("brokers", lambda: asyncio.to_thread(kafka_checks.brokers, admin, settings.kafka)),
            ("broker settings", lambda: asyncio.to_thread(_broker, admin)),
            ("topics", of_topics),
            ("Kafka permissions", lambda: asyncio.to_thread(kafka_checks.permissions, admin, names)),
        ]
    )


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
