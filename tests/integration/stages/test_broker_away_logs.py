"""While the broker is away a process logs few lines, all of them structured."""

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from eden_memory.local.local_kafka import LocalKafka
from eden_memory.processors.pipeline import ATLAS_WRITER, FORGETTING, FORMATION_TRIGGER
from eden_memory.settings import Settings
from tests.integration.source.harness import PARTITIONS, _environment, until  # pyright: ignore[reportPrivateUsage]
from tests.integration.system.running_system import prepare

pytestmark = pytest.mark.servers
COMMAND = (
    sys.executable,
    "-m",
    "eden_memory.cli.main",
    "run",
    "tailer",
    FORMATION_TRIGGER,
    FORGETTING,
    ATLAS_WRITER,
)
MOST_LINES = 60
"""What the process says of itself included; without a bound there are some hundred a second."""


@pytest.fixture
def broker(tmp_path: Path, jars_folder: Path) -> Generator[LocalKafka]:
    """One that a test may stop."""
    server = LocalKafka(tmp_path / "kafka", jars_folder=jars_folder)
    server.start()
    yield server
    server.stop()


@pytest.mark.slow
async def test_a_stopped_broker_does_not_fill_the_log(
    settings: Settings, broker: LocalKafka, tmp_path: Path
) -> None:
    given = {"bootstrap": broker.endpoint, "partitions": PARTITIONS}
    own = settings.model_copy(update={"kafka": settings.kafka.model_copy(update=given)})
    await prepare(own)
    log = tmp_path / "log"
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *COMMAND, env={**os.environ, **_environment(own)}, stdout=file, stderr=file, cwd=tmp_path
        )
    try:
        await until(_says(log, "partitions assigned", 3), "the stages run")
        before = len(_lines(log))
        await asyncio.to_thread(broker.stop)
        await until(_says(log, '"logger": "aiokafka', 1), "the first line")
        await asyncio.sleep(5)  # so long the broker is away
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), 90)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    said = [json.loads(line) for line in _lines(log)[before:]]
    kinds = Counter(one["event"] for one in said)
    assert len(said) < MOST_LINES, kinds
    assert sum(one.get("left_out", 0) for one in said) > MOST_LINES, kinds


def _lines(log: Path) -> list[str]:
    return log.read_text().splitlines()


def _says(log: Path, words: str, times: int) -> Callable[[], Any]:
    return lambda: sum(words in line for line in _lines(log)) >= times
