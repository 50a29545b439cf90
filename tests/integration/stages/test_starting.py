"""A process whose servers are away when it starts: it waits, says for what, gives up in time, and ends when told."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from eden_memory.assembly.mongo_setup import set_up
from eden_memory.errors import EdenError
from eden_memory.memory.memory_index_store import heed_versions
from eden_memory.mongo.client import connect
from eden_memory.schemas.envelope import SCHEMA_PREFIX, data_schema
from eden_memory.settings import Settings
from tests.integration.stages_on_servers import on_servers
from tests.integration.windows.harness import Kit
from tests.servers import TestServers

pytestmark = pytest.mark.servers
NOWHERE = "127.0.0.1:1"
MONGODB_AWAY = {"EDEN_MONGODB_URI": f"mongodb://{NOWHERE}/?serverSelectionTimeoutMS=300"}
KAFKA_AWAY = {"EDEN_KAFKA_BOOTSTRAP": NOWHERE}


@pytest.fixture
async def environment(settings: Settings, servers: TestServers) -> dict[str, str]:
    """Topics and collections are there; what a process is told of them."""
    async with on_servers(Kit, settings) as kit:
        await set_up(kit.database, kit.settings.names)
    return {
        "EDEN_MONGODB_URI": servers.mongodb_uri,
        "EDEN_MONGODB_DATABASE": settings.mongodb.database,
        "EDEN_KAFKA_BOOTSTRAP": servers.kafka_bootstrap,
        "EDEN_KAFKA_TOPIC_PREFIX": settings.kafka.topic_prefix,
        "EDEN_KAFKA_GROUP_PREFIX": settings.kafka.group_prefix,
    }


@asynccontextmanager
async def started(environment: dict[str, str], **changed: str) -> AsyncGenerator[Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "eden_memory.cli.main", "run", "formation-trigger"),
        env={**os.environ, **environment, **changed},
        stdout=PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def says(process: Process, words: str) -> str:
    """Its output up to a line with these words."""
    assert process.stdout is not None
    lines: list[str] = []
    async with asyncio.timeout(60):
        while not lines or words not in lines[-1]:
            line = await process.stdout.readline()
            assert line, f"it ended without {words!r}: {lines}"
            lines.append(line.decode())
    return "".join(lines)


@pytest.mark.parametrize(
    ("away", "named"),
    [pytest.param(MONGODB_AWAY, "MongoDB", marks=pytest.mark.slow), (KAFKA_AWAY, "Kafka")],
    ids=["MongoDB", "Kafka"],
)
async def test_a_process_waits_for_its_servers_and_gives_up_in_time(
    environment: dict[str, str], away: dict[str, str], named: str
) -> None:
    async with started(environment, **away, EDEN_RUN_START_SECONDS="4") as process:
        await says(process, "does not answer")
        await says(process, f"{named} ")
        assert await asyncio.wait_for(process.wait(), 60) == 1


async def test_a_database_that_is_not_set_up_is_named_although_kafka_is_away(
    environment: dict[str, str],
) -> None:
    """Both servers are looked at side by side, and what is wrong with one ends the waiting for the other."""
    changed = {**KAFKA_AWAY, "EDEN_MONGODB_DATABASE": environment["EDEN_MONGODB_DATABASE"] + "empty"}
    async with started(environment, **changed, EDEN_RUN_START_SECONDS="600") as process:
        said = await says(process, "Run `eden setup`")
        assert "MongoDB is not set up for memory" in said
        assert await asyncio.wait_for(process.wait(), 60) == 1


async def test_a_program_older_than_what_was_written_does_not_begin(settings: Settings) -> None:
    assert settings.mongodb.uri is not None
    async with connect(settings.mongodb.uri.get_secret_value()) as client:
        database, names = client[settings.mongodb.database], settings.names
        for _ in range(2):
            await heed_versions(database, names, {"A": 1, "B": 2})
        await heed_versions(database, names, {"A": 2, "B": 2, "C": 1})
        with pytest.raises(EdenError, match="A v2, C v1 cannot be read"):
            await heed_versions(database, names, {"A": 1, "B": 3})
        await heed_versions(database, names, {"A": 2, "B": 2, "C": 1})


async def test_a_program_does_not_begin_on_a_store_of_another_format(
    environment: dict[str, str], settings: Settings
) -> None:
    assert settings.mongodb.uri is not None
    async with connect(settings.mongodb.uri.get_secret_value()) as client:
        versions = client[settings.mongodb.database][settings.names["versions"]]
        await versions.insert_one({"_id": "events", "versions": {"FactChanged": 1}})
    async with started(environment) as process:
        said = await says(process, "EDEN_KAFKA_TOPIC_PREFIX")
        assert "store format 0; this version reads 1" in said
        assert await asyncio.wait_for(process.wait(), 60) == 1


async def test_a_program_does_not_begin_on_topics_of_another_format(environment: dict[str, str]) -> None:
    """Its own records, and what is none of ours, it goes past."""
    prefix = environment["EDEN_KAFKA_TOPIC_PREFIX"]
    written = {
        "memory.candidates": data_schema("FactsProposed", 1).encode(),
        "memory.usage": b"urn:somebody:else",
        "memory.facts": SCHEMA_PREFIX.encode() + b"FactChanged.v5",
    }
    producer: Any
    async with AIOKafkaProducer(bootstrap_servers=environment["EDEN_KAFKA_BOOTSTRAP"]) as producer:
        for topic, schema in written.items():
            await producer.send_and_wait(prefix + topic, b"{}", b"k", headers=[("ce_dataschema", schema)])
    async with started(environment) as process:
        said = await says(process, "EDEN_KAFKA_TOPIC_PREFIX")
        assert f"the records in {prefix}memory.facts (store format 0; this version reads 1)" in " ".join(
            said.split()
        )
        assert await asyncio.wait_for(process.wait(), 60) == 1


async def test_it_says_so(environment: dict[str, str], settings: Settings) -> None:
    assert settings.mongodb.uri is not None
    async with connect(settings.mongodb.uri.get_secret_value()) as client:
        await heed_versions(client[settings.mongodb.database], settings.names, {"FactChanged": 99})
    async with started(environment) as process:
        said = await says(process, "FactChanged v99 cannot be read")
        assert "Traceback" not in said
        assert await asyncio.wait_for(process.wait(), 60) == 1


@pytest.mark.parametrize(
    ("away", "number"),
    [(MONGODB_AWAY, signal.SIGTERM), pytest.param(KAFKA_AWAY, signal.SIGINT, marks=pytest.mark.slow)],
    ids=["MongoDB", "Kafka"],
)
async def test_a_signal_ends_the_waiting_at_once(
    environment: dict[str, str], away: dict[str, str], number: signal.Signals
) -> None:
    async with started(environment, **away, EDEN_RUN_START_SECONDS="600") as process:
        await says(process, "does not answer")
        process.send_signal(number)
        assert await asyncio.wait_for(process.wait(), 60) == 0


async def test_a_server_that_comes_while_a_process_waits_lets_it_begin(
    environment: dict[str, str], servers: TestServers
) -> None:
    """In front of Kafka there is a door that opens late."""
    host, port = servers.kafka_bootstrap.split(",")[0].rsplit(":", 1)
    async with (
        _door(host, int(port)) as (door, opens),
        started(environment, EDEN_KAFKA_BOOTSTRAP=door) as process,
    ):
        await says(process, "does not answer")
        opens.set()
        await says(process, "stage runs")
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 60) == 0


@asynccontextmanager
async def _door(host: str, port: int) -> AsyncGenerator[tuple[str, asyncio.Event]]:
    """An address that leads to the server once it is open: brokers then name their own."""
    opens = asyncio.Event()
    tasks: set[asyncio.Task[None]] = set()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65_536):
            writer.write(chunk)
        writer.close()

    async def visited(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not opens.is_set():
            writer.close()
            return
        behind, into = await asyncio.open_connection(host, port)
        for task in (carry(reader, into), carry(behind, writer)):
            tasks.add(asyncio.create_task(task))

    server = await asyncio.start_server(visited, "127.0.0.1", 0)
    name, number = server.sockets[0].getsockname()
    try:
        yield f"{name}:{number}", opens
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
