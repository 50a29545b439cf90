"""What every test stands on: real servers for the session, a namespace of its own, no network, no keys."""

import ctypes
import gc
import os
import signal
from collections.abc import AsyncGenerator, Generator
from functools import cache
from pathlib import Path
from shutil import rmtree
from typing import Any
from uuid import uuid4

import hypothesis
import psutil
import pytest
import structlog
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportUnknownVariableType]
from pydantic import SecretStr
from pymongo import MongoClient
from pymongo.asynchronous.database import AsyncDatabase
from pytest_socket import socket_allow_hosts

from eden_memory.kafka.connection import admin_config
from eden_memory.mongo.client import connect
from eden_memory.settings import KafkaSettings, LocalSettings, MongoSettings, Settings
from eden_memory.tasks import claim_process
from tests.left_transports import ignored_transports
from tests.servers import Namespace, TestServers, running_servers

KEYS = ("OPENAI_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY", "ANTHROPIC_API_KEY", "AZURE_OPENAI_API_KEY")
SLOW = hypothesis.HealthCheck.too_slow
EXAMPLES = int(os.environ.get("EDEN_TEST_EXAMPLES", "40"))
"""What a property is tried with: each run draws others; `make test-slow` tries more."""
LOOPBACK = ["127.0.0.1", "::1", "localhost"]
SERVERS = ("EDEN_MONGODB_URI", "EDEN_KAFKA_BOOTSTRAP", "EDEN_ATLAS_URI")
MEMORY_BYTES = 8_000_000_000
"""Room for the folders of a run's servers."""
WORKERS_BYTES = 12_000_000_000
"""What servers, workers and type checks of a run take beside their folders."""
M_ARENA_MAX = -8
"""The parameter of glibc's `mallopt`, of `malloc.h`."""
GIVEN: dict[str, str] = {}
"""Servers that the environment named before it was cleared."""


def pytest_configure() -> None:
    """Keep the addresses of given servers, then clear the settings of the machine; no example has to be quick."""
    if Path("eden.toml").exists():
        raise pytest.UsageError(
            "move eden.toml out of this folder: the commands that tests start would read it"
        )
    claim_process()
    _in_memory()
    _with_one_arena()
    os.environ.setdefault(
        "OPENBLAS_NUM_THREADS", "1"
    )  # threads that wait for each other while every core is busy
    given = {name: os.environ.get(name) for name in SERVERS}
    GIVEN.update({name: value for name, value in given.items() if value})
    for name in list(os.environ):
        if name in KEYS or (name.startswith("EDEN_") and not name.startswith("EDEN_TEST_")):
            del os.environ[name]
    os.environ["EDEN_MEMORY_SHARING"] = "team"  # as the earlier systems; tests of `private` say so
    os.environ["EDEN_MESSAGES_DELETE_GRACE_SECONDS"] = "0"  # tests of the grace say how long it is
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")  # Kafka of tests never runs for long
    Settings.model_config["toml_file"] = None
    hypothesis.settings.register_profile(
        "any machine", max_examples=EXAMPLES, deadline=None, suppress_health_check=[SLOW]
    )
    hypothesis.settings.load_profile("any machine")
    signal.signal(signal.SIGTERM, _as_interrupt)
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # of a run behind a shell children inherit SIG_IGN


def _in_memory() -> None:
    """Have folders of tests in memory, where there is enough of it: servers of tests sync a thousand files."""
    memory = Path("/dev/shm")
    if "PYTEST_DEBUG_TEMPROOT" in os.environ or not os.access(memory, os.W_OK):
        return
    found = os.statvfs(memory)
    room = min(
        found.f_bavail * found.f_frsize, psutil.virtual_memory().available - WORKERS_BYTES
    )  # runs that were killed may have left theirs
    if room >= MEMORY_BYTES and not found.f_flag & os.ST_NOEXEC:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(memory)


def _with_one_arena() -> None:
    """Have threads share memory: hundreds of short-lived ones would each leave a part of a gigabyte behind."""
    allocator = ctypes.CDLL(None)
    if hasattr(allocator, "mallopt"):
        allocator.mallopt(M_ARENA_MAX, 1)


def pytest_collection_finish() -> None:
    """Spare the collector the million objects that tests consist of."""
    gc.collect()
    gc.freeze()


def _as_interrupt(number: int, frame: object) -> None:
    """SIGTERM ends the run as Ctrl-C does: what the fixtures started is stopped."""
    del number, frame
    raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def only_loopback() -> None:
    """Sockets reach this machine only (pytest-socket lifts it after each test)."""
    socket_allow_hosts(LOOPBACK, allow_unix_socket=True)


@pytest.fixture(autouse=True)
def without_structured_logs() -> Generator[None]:
    """No test leaves its logs' configuration to the next."""
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session", autouse=True)
def without_transports_of_pymongo() -> Generator[None]:
    """What PyMongo leaves unclosed fails no test; what anything else leaves does."""
    with ignored_transports():
        yield


@pytest.fixture(scope="session")
def jars_folder(pytestconfig: pytest.Config) -> Path:
    """The checkout's verified jars."""
    return pytestconfig.rootpath / ".eden" / "jars"


@pytest.fixture(scope="session")
def servers(jars_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[TestServers]:
    """MongoDB and Kafka for the whole session: those given by the environment, else private ones."""
    folder = tmp_path_factory.mktemp("servers")
    try:
        with running_servers(GIVEN, folder, jars_folder) as running:
            yield running
            _mongo_of(running.mongodb_uri).close()
            _admin_of.cache_clear()  # before its broker goes: it would log that it is away
    finally:
        rmtree(folder, ignore_errors=True)


@pytest.fixture
def namespace(servers: TestServers) -> Generator[Namespace]:
    """Names that belong to this test alone; what was made under them is removed afterwards."""
    mine = Namespace(f"t{uuid4().hex[:12]}")
    yield mine
    _drop_databases(servers, mine)
    _drop_kafka(servers, mine)


@pytest.fixture
def settings(servers: TestServers, namespace: Namespace, tmp_path: Path) -> Settings:
    """Settings for the session's servers and this test's namespace."""
    return settings_on(servers, namespace, tmp_path / "eden")


@pytest.fixture
async def database(settings: Settings) -> AsyncGenerator[AsyncDatabase[dict[str, Any]]]:
    """This test's database, without collections."""
    assert settings.mongodb.uri is not None
    async with connect(settings.mongodb.uri.get_secret_value()) as client:
        yield client[settings.mongodb.database]


def settings_on(servers: TestServers, mine: Namespace, folder: Path) -> Settings:
    """Settings for these servers and names, with a folder for local files."""
    return Settings(
        mongodb=MongoSettings(uri=SecretStr(servers.mongodb_uri), database=mine.database),  # pyright: ignore[reportCallIssue]
        kafka=KafkaSettings(  # pyright: ignore[reportCallIssue]
            bootstrap=servers.kafka_bootstrap,
            topic_prefix=mine.topic_prefix,
            group_prefix=mine.group_prefix,
        ),
        local=LocalSettings(folder=folder),  # pyright: ignore[reportCallIssue]
    )


def _drop_databases(servers: TestServers, mine: Namespace) -> None:
    client = _mongo_of(servers.mongodb_uri)
    for name in client.list_database_names():
        if name.startswith(mine.database):
            client.drop_database(name)


def _drop_kafka(servers: TestServers, mine: Namespace) -> None:
    """Delete its groups and topics; nobody waits until brokers have removed the topics."""
    admin = _admin_of(servers.kafka_bootstrap)
    listed = [group.group_id for group in admin.list_consumer_groups().result(60).valid]
    groups = [name for name in listed if name.startswith(mine.group_prefix)]
    topics = [name for name in admin.list_topics(timeout=60).topics if name.startswith(mine.topic_prefix)]
    removals: dict[str, Any] = {
        **(admin.delete_consumer_groups(groups) if groups else {}),
        **(admin.delete_topics(topics) if topics else {}),
    }
    for removal in removals.values():
        removal.exception(60)


@cache
def _mongo_of(uri: str) -> MongoClient[dict[str, object]]:
    """One client for all tests of a process."""
    return MongoClient(uri)


@cache
def _admin_of(bootstrap: str) -> Any:
    return AdminClient(admin_config(KafkaSettings(), bootstrap))  # pyright: ignore
