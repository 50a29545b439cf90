"""The examples of consumers as programs: run to the end that the topics have now."""

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from eden_memory.settings import Settings

ROOT = Path(__file__).parents[3]
CONSUMERS = ROOT / "examples" / "consumers"
GO = CONSUMERS / "go"
needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="no Go toolchain")


async def plain(settings: Settings) -> list[str]:
    """What the program in plain Python says; it can import nothing of ours."""
    return await _run(sys.executable, "-I", str(CONSUMERS / "plain_aiokafka.py"), *_options(settings))


async def in_go(settings: Settings, folder: Path) -> list[str]:
    """What the one in Go says."""
    program = str(folder / "consumer")
    if not await _built(program):
        pytest.skip("the example's Go modules are not on this machine (go mod download)")
    return await _run(program, *_options(settings))


async def _run(*command: str) -> list[str]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=pipe, stderr=pipe)
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
