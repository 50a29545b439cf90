"""The examples of consumers, each a stranger's program: run on topics that hold every example payload."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer

from eden_memory.schemas.example_files import examples_of
from eden_memory.settings import Settings
from tests.integration.subscribing.consumer_programs import ROOT, in_go, needs_go, plain
from tests.integration.subscribing.published import MEMORY, Writing, writing

pytestmark = pytest.mark.servers
SESSIONS_CLOSED = len(examples_of("SessionClosed", 1))
"""Examples of another type in one of the topics."""


@pytest.fixture
async def topics(settings: Settings) -> AsyncGenerator[Writing]:
    async with writing(settings, (*MEMORY, "mine.dead")) as ready:
        yield ready


async def _filled(topics: Writing) -> int:
    """Every example of the three topics, what newer programs might write; how many records there are."""
    written = 0
    for topic in MEMORY:
        written += await topics.examples(topic)
    fact = next(iter(examples_of("FactChanged", 1).values()))
    value = json.dumps({**fact, "fact_id": "later", "version": 1, "text": "new", "unheard_of": 1}).encode()
    headers = topics.envelope("FactChanged", "newer", "later", fact["scope"]["key"]).headers()
    await topics.record("memory.facts", b"later@1", value, headers)
    next_version = [(name, of.replace(b".v1", b".v2")) for name, of in headers]
    await topics.record("memory.facts", b"later@2", b'{"said": "otherwise"}', next_version)
    return written + 2


async def test_a_plain_client_reads_everything_from_the_start(topics: Writing, settings: Settings) -> None:
    written = await _filled(topics)
    lines = await plain(settings)
    assert len(lines) == written + 1
    assert sum(line.startswith("erased") for line in lines) == len(MEMORY)
    said = json.loads(lines[-1])
    assert (said["erased"], said["passed_over"]) == (len(MEMORY), 1 + SESSIONS_CLOSED)
    assert any("'new'" in line for line in lines)
    assert sum(line.startswith("passed over eden.FactChanged.v2 later@2") for line in lines) == 1
    assert await topics.groups() == []


@needs_go
@pytest.mark.timeout(400)
async def test_a_go_program_with_the_cloudevents_sdk_holds_the_same(
    topics: Writing, settings: Settings, tmp_path: Path
) -> None:
    await _filled(topics)
    lines = await in_go(settings, tmp_path)
    assert json.loads(lines[-1]) == json.loads((await plain(settings))[-1])
    assert sum(line.startswith("erased") for line in lines) == len(MEMORY)


@pytest.mark.slow
async def test_a_faststream_program_reads_typed_events_in_its_own_group(
    topics: Writing, settings: Settings
) -> None:
    written, group = await _filled(topics), settings.kafka.topic_prefix + "mine"
    assert settings.kafka.bootstrap is not None
    environment = {
        **os.environ,
        "BROKERS": settings.kafka.bootstrap,
        "EDEN_KAFKA_TOPIC_PREFIX": settings.kafka.topic_prefix,
        "GROUP": group,
        "PYTHONPATH": str(ROOT),
    }
    command = (sys.executable, "-m", "faststream", "run", "examples.consumers.faststream_consumer:app")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=environment, stdout=pipe)
    assert process.stdout is not None
    told = [b"fact ", b"reflection ", b"blob ", b"erased "]
    try:
        async with asyncio.timeout(60):
            lines = list[bytes]()
            while len(lines) < written - SESSIONS_CLOSED - 1:
                line = await process.stdout.readline()
                assert line, "it has ended"
                lines += [line] if line.startswith(tuple(told)) else []
            newer = await _first(settings.kafka.bootstrap, group + ".dead")
    finally:
        process.terminate()
        await process.wait()
    assert {one for one in told if any(line.startswith(one) for line in lines)} == set(told)
    assert newer.key == b"later@2"
    assert b"v2 is not known here" in dict(newer.headers)["__connect.errors.exception.message"]
    assert await topics.groups() == [group]


async def _first(bootstrap: str, topic: str) -> Any:
    """Return a topic's first record, once there is one."""
    consumer: Any = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    async with consumer:
        return await consumer.getone()
