"""The doctor on real servers, with things made wrong on purpose."""

import asyncio
import gc
import json
import re
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportUnknownVariableType]
from confluent_kafka.cimpl import NewTopic
from pydantic import SecretStr
from pymongo import AsyncMongoClient
from typer.testing import CliRunner

from eden_memory.assembly.mongo_setup import set_up
from eden_memory.assembly.needs import NEEDS
from eden_memory.assembly.tailer import tailing
from eden_memory.cli.main import app
from eden_memory.doctor import kafka_checks
from eden_memory.doctor.examine import Examination, examine
from eden_memory.doctor.finding import OPLOG, Finding, needed
from eden_memory.doctor.mongodb_checks import session_index
from eden_memory.kafka.connection import admin_config, client_kwargs
from eden_memory.kafka.topic_admin import apply_topics
from eden_memory.kafka.topics import load_topics
from eden_memory.local.local_kafka import KafkaSecurity, LocalKafka
from eden_memory.local.mongo import LocalMongo
from eden_memory.mongo.client import connect
from eden_memory.settings import KafkaSettings, MongoSettings, Settings
from tests.servers import TestServers, wait_until

pytestmark = pytest.mark.servers
SHELL = r'db\.getSiblingDB\("(.*?)"\)\.(?:getCollection\("(.*?)"\)\.createIndex|runCommand)\((.*)\)'
MESSAGE = {"_id": "m1", "session_id": "s", "role": "user", "content": "Hi"}
PASSWORD = "only-for-this-test"
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture
async def client(
    settings: Settings, servers: TestServers
) -> AsyncGenerator[AsyncMongoClient[dict[str, Any]]]:
    async with connect(servers.mongodb_uri) as client:
        yield client


@pytest.fixture
async def healthy(
    settings: Settings, servers: TestServers, client: AsyncMongoClient[dict[str, Any]]
) -> Settings:
    """Topics, collection, index, pre-images and a message, all as they should be."""
    await asyncio.to_thread(
        apply_topics, admin_config(settings.kafka, servers.kafka_bootstrap), load_topics(settings.kafka)
    )
    await set_up(client[settings.mongodb.database], settings.names)
    database = client[settings.source_database]
    await database.create_collection("messages", changeStreamPreAndPostImages={"enabled": True})
    await database["messages"].create_index([("created_at", 1), ("_id", 1)])
    await database["messages"].create_index([("session_id", 1), ("user_id", 1)])
    await database["messages"].insert_one(
        {
            "session_id": "s",
            "role": "user",
            "user_id": "ada",
            "content": "Hi",
            "created_at": "2026-03-02T08:12:00Z",
        }
    )
    return settings


def of(examination: Examination, check: str) -> Finding:
    return next(one for one in examination.findings if one.check == check)


async def test_a_healthy_installation_has_nothing_to_put_right(healthy: Settings) -> None:
    examination = await examine(healthy)
    assert {one.check for one in examination.findings if one.state != "ok"} == {"MongoDB permissions"}
    needs = {need.name for need in NEEDS}
    assert needs <= {one.check for one in examination.findings}


async def test_a_new_installation_is_told_what_is_missing(settings: Settings) -> None:
    examination = await examine(settings)
    assert of(examination, "topics").state == "fail"
    assert of(examination, "messages collection").state == "fail"
    assert of(examination, "memory collections").hint == "Run `eden setup`."
    assert of(examination, "field mapping").state == "warn"
    commands = [finding.hint for finding in examination.findings if "db." in finding.hint]
    assert not commands, "a collection that does not exist has no index and no pre-images to be made"
    assert [finding.check for finding in examination.findings if "eden topics apply" in finding.hint] == [
        "topics"
    ]


async def test_what_is_wrong_with_the_collection_is_found(
    healthy: Settings, client: AsyncMongoClient[dict[str, Any]]
) -> None:
    messages = client[healthy.source_database]["messages"]
    await messages.drop_indexes()
    await messages.create_index("created_at", expireAfterSeconds=3_600)
    await messages.database.command(
        {"collMod": "messages", "changeStreamPreAndPostImages": {"enabled": False}}
    )
    await messages.insert_many([{"role": "bot", "content": "no session"} for _ in range(3)])
    examination = await examine(healthy)
    assert of(examination, "TTL index").state == "fail"
    assert "3,600 s" in of(examination, "TTL index").what
    assert of(examination, "backfill index").state == "warn"
    assert of(examination, "pre-images").state == "warn"
    assert "1 of the newest 4" in of(examination, "field mapping").what
    assert "'bot' (3)" in of(examination, "roles").what


async def test_where_authors_say_who_is_in_a_session_an_index_by_session_is_asked_for(
    healthy: Settings, client: AsyncMongoClient[dict[str, Any]]
) -> None:
    source = client[healthy.source_database]
    assert (await session_index(source, healthy)).what == "{session_id: 1, user_id: 1}"
    await source["messages"].drop_indexes()
    found = await session_index(source, healthy)
    assert (found.state, "createIndex" in found.hint) == ("warn", True)
    sessions = healthy.sessions.model_copy(update={"collection": "sessions"})
    mapped = healthy.model_copy(update={"sessions": sessions})
    await source["sessions"].insert_one({"_id": "c1", "title": "no users"})
    assert (await session_index(source, mapped)).state == "warn"
    await source["sessions"].insert_one({"_id": "c2", "users": ["rui"]})
    assert (await session_index(source, mapped)).state == "ok"
    await source["messages"].create_index("session_id")
    assert (await session_index(source, healthy)).what == "{session_id: 1}"


async def typed(client: AsyncMongoClient[dict[str, Any]], command: str) -> None:
    """Do what mongosh does with such a line."""
    matched = re.fullmatch(SHELL, command)
    assert matched is not None, command
    place, collection, given = matched.groups()
    if collection is None:
        await client[place].command(json.loads(re.sub(r"(\w+):", r'"\1":', given)))
    else:
        await client[place][collection].create_index(list(json.loads(given).items()))


async def test_the_commands_of_the_hints_put_it_right(
    healthy: Settings, client: AsyncMongoClient[dict[str, Any]]
) -> None:
    messages = healthy.messages.model_copy(update={"collection": "chat-messages"})
    mapped = healthy.model_copy(update={"messages": messages})
    await client[healthy.source_database]["chat-messages"].insert_one(MESSAGE)
    for check in ("pre-images", "backfill index", "session index"):
        found = of(await examine(mapped), check)
        assert found.state == "warn"
        await typed(client, found.hint)
        assert of(await examine(mapped), check).state == "ok"


async def test_a_topic_made_by_somebody_else_is_found(healthy: Settings, servers: TestServers) -> None:
    admin: Any = AdminClient(admin_config(healthy.kafka, servers.kafka_bootstrap))
    name = load_topics(healthy.kafka).name("chat.messages")
    admin.delete_topics([name])[name].result(60)
    await _until(lambda: name not in admin.list_topics(timeout=10).topics)
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
    await _until(lambda: name in admin.list_topics(timeout=10).topics)
    found = of(await examine(healthy), "topics")
    assert found.state == "fail"
    assert f"{name} has 1 partitions, not 6" in found.what
    assert "cleanup.policy" in found.what


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning"
)  # PyMongo leaves the socket of a refused connection
async def test_servers_that_do_not_answer_are_findings(settings: Settings) -> None:
    uri = SecretStr("mongodb://eden:secret-word@127.0.0.1:1/?serverSelectionTimeoutMS=300")
    gone = settings.model_copy(
        update={
            "mongodb": settings.mongodb.model_copy(update={"uri": uri}),
            "kafka": settings.kafka.model_copy(update={"bootstrap": "127.0.0.1:1"}),
        }
    )
    examination = await examine(gone)
    assert of(examination, "MongoDB").state == "fail"
    assert of(examination, "Kafka").state == "fail"
    assert "secret-word" not in str(examination)
    await asyncio.sleep(0)
    gc.collect()


def test_the_command_exits_with_1_and_prints_json(
    settings: Settings, servers: TestServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDEN_MONGODB_URI", servers.mongodb_uri)
    monkeypatch.setenv("EDEN_MONGODB_DATABASE", settings.mongodb.database)
    monkeypatch.setenv("EDEN_KAFKA_BOOTSTRAP", servers.kafka_bootstrap)
    monkeypatch.setenv("EDEN_KAFKA_TOPIC_PREFIX", settings.kafka.topic_prefix)
    result = CliRunner().invoke(app, ["doctor", "--json"])
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    (topics,) = (one for one in found["findings"] if one["check"] == "topics")
    assert (topics["state"], "eden topics apply" in topics["hint"]) == ("fail", True)
    assert "createRole" in found["mongodb_role"]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Generator[LocalMongo]:
    """A mongod that checks who may do what."""
    folder = tmp_path_factory.mktemp("guarded")
    key_file = folder / "members.key"
    key_file.write_text("a2V5IG9mIHRoZSBtZW1iZXJz")
    key_file.chmod(0o400)
    server = LocalMongo(
        folder / "mongodb",
        options={"security": {"authorization": "enabled", "keyFile": str(key_file)}},
    )
    server.start()
    with server.connect() as client:
        client.admin.command("createUser", "root", pwd=PASSWORD, roles=["root"])
    yield server
    server.kill()


def as_user(server: LocalMongo, user: str) -> str:
    return server.endpoint.replace("://", f"://{user}:{PASSWORD}@")


@pytest.fixture
async def limited(healthy: Settings, guarded: LocalMongo) -> AsyncGenerator[Settings]:
    """Settings of a user with exactly the role that the doctor prints."""
    uri = SecretStr(as_user(guarded, "eden"))
    mine = healthy.model_copy(
        update={"mongodb": MongoSettings(uri=uri, database=healthy.mongodb.database)}  # pyright: ignore[reportCallIssue]
    )
    privileges = [one.document() for one in [*needed(mine), OPLOG]]
    async with connect(as_user(guarded, "root")) as root:
        await root.admin.command("createRole", "edenMemory", privileges=privileges, roles=[])
        await root.admin.command("createUser", "eden", pwd=PASSWORD, roles=["edenMemory"])
        await root.admin.command("createUser", "weak", pwd=PASSWORD, roles=["readAnyDatabase"])
        yield mine
        for command in ({"dropUser": "eden"}, {"dropUser": "weak"}, {"dropRole": "edenMemory"}):
            await root.admin.command(command)


async def test_the_role_printed_is_found_to_be_enough(limited: Settings) -> None:
    examination = await examine(limited)
    assert of(examination, "MongoDB permissions").state == "ok"
    assert of(examination, "oplog window").what.endswith("too young to judge")


async def test_a_user_with_too_few_rights_is_told_which(limited: Settings, guarded: LocalMongo) -> None:
    uri = SecretStr(as_user(guarded, "weak"))
    weak = limited.model_copy(update={"mongodb": limited.mongodb.model_copy(update={"uri": uri})})
    found = of(await examine(weak), "MongoDB permissions")
    assert found.state == "fail"
    assert "remove" in found.what
    assert "memory_positions" in found.what


async def test_a_right_that_is_missing_is_said_once(limited: Settings, guarded: LocalMongo) -> None:
    async with connect(as_user(guarded, "root")) as root:
        await root.admin.command("createUser", "nobody", pwd=PASSWORD, roles=[])
    uri = SecretStr(as_user(guarded, "nobody"))
    mongodb = limited.mongodb.model_copy(update={"uri": uri})
    examination = await examine(limited.model_copy(update={"mongodb": mongodb}))
    async with connect(as_user(guarded, "root")) as root:
        await root.admin.command("dropUser", "nobody")
    assert of(examination, "MongoDB permissions").state == "fail"
    refused = [finding for finding in examination.findings if "could not be looked at" in finding.what]
    assert not refused


async def test_the_role_printed_is_enough_for_the_tailer(
    limited: Settings, guarded: LocalMongo, servers: TestServers
) -> None:
    topic = load_topics(limited.kafka).name("chat.messages")
    consumer: Any = AIOKafkaConsumer(
        topic, **client_kwargs(limited.kafka, servers.kafka_bootstrap), auto_offset_reset="earliest"
    )
    async with (
        connect(as_user(guarded, "root")) as root,
        tailing(limited) as tailer,
        consumer,
        asyncio.timeout(60),
    ):
        await root[limited.source_database]["messages"].insert_one(MESSAGE)
        running = asyncio.create_task(tailer.run())
        keys: set[bytes | None] = set()
        while b"s.m1" not in keys:
            keys.add((await consumer.getone()).key)
        tailer.stop()
        await running


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory, jars_folder: Path) -> Generator[LocalKafka]:
    """A broker as many are: offsets for a day, topics made by whoever asks."""
    server = LocalKafka(
        tmp_path_factory.mktemp("forgetful") / "kafka",
        jars_folder=jars_folder,
        properties={"offsets.retention.minutes": "1440", "auto.create.topics.enable": "true"},
    )
    server.start()
    yield server
    server.kill()


async def test_a_broker_that_forgets_offsets_is_found(settings: Settings, forgetful: LocalKafka) -> None:
    kafka = settings.kafka.model_copy(update={"bootstrap": forgetful.endpoint, "replication_factor": 3})
    examination = await examine(settings.model_copy(update={"kafka": kafka}))
    assert of(examination, "offset retention").state == "fail"
    assert of(examination, "topics made by accident").state == "warn"
    assert of(examination, "brokers").state == "fail"
    assert of(examination, "Kafka version").what == "4.0 or newer"
    admin: Any = AdminClient(admin_config(kafka, forgetful.endpoint))
    assert not admin.list_topics(timeout=10).topics, "asking for topics made none"


def as_principal(user: str) -> KafkaSettings:
    return KafkaSettings(  # pyright: ignore[reportCallIssue]
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username=user,
        sasl_password=SecretStr(PASSWORD),
    )


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory, jars_folder: Path) -> Generator[LocalKafka]:
    """A broker that lets nobody but `root` do anything without an ACL."""
    client = admin_config(as_principal("root"), "")
    del client["bootstrap.servers"]
    users = " ".join(f'user_{name}="{PASSWORD}"' for name in ("root", "eden"))
    login = f'{LOGIN} required username="root" password="{PASSWORD}" {users};'
    security = KafkaSecurity(
        protocol="SASL_PLAINTEXT",
        server={
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": login,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:root",  # the controller's listener asks for no name
        },
        client=client,
    )
    server = LocalKafka(
        tmp_path_factory.mktemp("strict") / "kafka", jars_folder=jars_folder, security=security
    )
    server.start()
    yield server
    server.kill()


async def test_topics_that_the_broker_hides_are_a_missing_right_and_not_missing_topics(
    settings: Settings, strict: LocalKafka
) -> None:
    prefix = {"bootstrap": strict.endpoint, "topic_prefix": settings.kafka.topic_prefix}
    root, eden = (as_principal(name).model_copy(update=prefix) for name in ("root", "eden"))
    await asyncio.to_thread(apply_topics, admin_config(root, strict.endpoint), load_topics(root))
    examination = await examine(settings.model_copy(update={"kafka": eden}))
    found = of(examination, "Kafka permissions")
    assert (found.state, "chat.messages: read, write, describe" in found.what) == ("fail", True)
    assert "--rights" in found.hint
    assert not [finding for finding in examination.findings if "eden topics apply" in finding.hint]
    allowed = await examine(settings.model_copy(update={"kafka": root}))
    assert of(allowed, "Kafka permissions").state == of(allowed, "topics").state == "ok"


async def test_a_check_that_meets_a_value_it_cannot_read_is_a_finding(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_: object) -> Finding:
        raise ValueError("invalid literal for int()")

    monkeypatch.setattr(kafka_checks, "broker_version", broken)
    found = of(await examine(settings), "Kafka version")
    assert (found.state, found.what[:35]) == ("warn", "could not be looked at: ValueError:")


async def _until(holds: Any, seconds: float = 60.0) -> None:
    await asyncio.to_thread(wait_until, holds, "the topic as wanted", seconds)
