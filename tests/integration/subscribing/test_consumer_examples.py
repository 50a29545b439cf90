"""The examples of consumers, each a stranger's program: run on topics that hold every example payload."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from eden_memory.schemas.example_files import examples_of
from eden_memory.settings import Settings
from tests.integration.subscribing.consumer_programs import ROOT, in_go, needs_go, plain
from tests.integration.subscribing.published import MEMORY, Writing, writing

pytestmark = pytest.mark.servers
SESSIONS_CLOSED = len(examples_of("SessionClosed", 1))
"""Examples of another type in one of the topics."""


@pytest.fixture
async def topics(settings: Settings) -> AsyncGenerator[Writing]:
    async with writing(settings) as ready:
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
    next_version = [(name, of.replace(b".v3", b".v4")) for name, of in headers]
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
    assert sum(line.startswith("passed over eden.FactChanged.v4 later@2") for line in lines) == 1
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


async def test_a_faststream_program_reads_typed_events_in_its_own_group(
    topics: Writing, settings: Settings
) -> None:
    written = await _filled(topics)
    environment = {
        **os.environ,
        "BROKERS": settings.kafka.bootstrap or "",
        "TOPIC_PREFIX": settings.kafka.topic_prefix,
        "GROUP": settings.kafka.group_prefix + "mine",
        "PYTHONPATH": str(ROOT),
    }
    command = (sys.executable, "-m", "faststream", "run", "examples.consumers.faststream_consumer:app")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=environment, stdout=pipe)
    assert process.stdout is not None
    told = [b"fact ", b"reflection ", b"blob ", b"SessionClosed ", b"erased ", b"left out "]
    try:
        async with asyncio.timeout(60):
            lines = list[bytes]()
            while len(lines) < written:
                line = await process.stdout.readline()
                assert line, "it has ended"
                lines += [line] if line.startswith(tuple(told)) else []
    finally:
        process.terminate()
        await process.wait()
    assert {one for one in told if any(line.startswith(one) for line in lines)} == set(told)
    assert await topics.groups() == [settings.kafka.group_prefix + "mine"]
