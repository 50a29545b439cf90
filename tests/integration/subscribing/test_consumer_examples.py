"""The examples of consumers, each a stranger's program: run on topics that hold every example payload."""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import pytest

from eden_memory.settings import Settings
from tests.integration.subscribing.published import MEMORY, Writing, writing

pytestmark = pytest.mark.servers
ROOT = Path(__file__).parents[3]
CONSUMERS = ROOT / "examples" / "consumers"
GO = CONSUMERS / "go"


@pytest.fixture
async def topics(settings: Settings) -> AsyncGenerator[Writing]:
    async with writing(settings) as ready:
        yield ready


async def _filled(topics: Writing) -> int:
    """Every example of the three topics, what a newer program might write, and what no program should have."""
    written = 0
    for topic in MEMORY:
        written += await topics.examples(topic)
    newer = topics.envelope("FactChanged", "newer", "later", "agent:s.a")
    await topics.record("memory.facts", b"later@1", b'{"text": "new", "unheard_of": 1}', newer.headers())
    return written + 1


async def _run(*command: str, **environment: str) -> list[str]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, env={**os.environ, **environment}, stdout=pipe, stderr=pipe
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode().splitlines()


def _options(settings: Settings) -> tuple[str, ...]:
    return (
        "--brokers",
        settings.kafka.bootstrap or "",
        "--prefix",
        settings.kafka.topic_prefix,
        "--until-end",
    )


async def test_a_plain_client_reads_everything_from_the_start(topics: Writing, settings: Settings) -> None:
    written = await _filled(topics)
    script = str(CONSUMERS / "plain_aiokafka.py")
    lines = await _run(sys.executable, "-I", script, *_options(settings))
    assert len(lines) == written + 1
    assert sum(line.startswith("erased") for line in lines) == len(MEMORY)
    assert json.loads(lines[-1])["erased"] == len(MEMORY)
    assert any("'new'" in line for line in lines)
    assert await topics.groups() == []


@pytest.mark.skipif(shutil.which("go") is None, reason="no Go toolchain")
@pytest.mark.timeout(400)
async def test_a_go_program_with_the_cloudevents_sdk_holds_the_same(
    topics: Writing, settings: Settings, tmp_path: Path
) -> None:
    await _filled(topics)
    program = str(tmp_path / "consumer")
    if not await _built(program):
        pytest.skip("the example's Go modules are not on this machine (go mod download)")
    lines = await _run(program, *_options(settings))
    plain = await _run(sys.executable, "-I", str(CONSUMERS / "plain_aiokafka.py"), *_options(settings))
    assert json.loads(lines[-1]) == json.loads(plain[-1])
    assert sum(line.startswith("erased") for line in lines) == len(MEMORY)


async def _built(program: str) -> bool:
    """Without the network: from modules that are there already."""
    offline: Mapping[str, str] = {**os.environ, "GOPROXY": "off", "GOFLAGS": "-mod=mod -buildvcs=false"}
    command = ("go", "build", "-o", program, ".")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=GO, env=offline, stderr=pipe)
    _, err = await process.communicate()
    if process.returncode:
        assert b"module lookup disabled" in err, err.decode()
    return process.returncode == 0


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
