"""`eden tap` whose broker goes away: it says so once, waits with pauses, and goes on when the broker is back."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from eden_memory.kafka.connection import client_kwargs
from eden_memory.local.local_kafka import LocalKafka
from eden_memory.schemas.envelope import Envelope
from eden_memory.settings import KafkaSettings
from eden_memory.stages.outcome import StoredRecord
from eden_memory.stages.publishing import Publisher, new_producer
from tests.integration.stages.harness import NOON, make_topics

pytestmark = [pytest.mark.servers, pytest.mark.slow]
TOPIC = "memory.facts"


async def test_it_waits_for_its_broker_says_so_once_and_goes_on(tmp_path: Path, jars_folder: Path) -> None:
    kafka = LocalKafka(tmp_path, jars_folder=jars_folder)
    await asyncio.to_thread(kafka.start)
    client = client_kwargs(KafkaSettings(bootstrap=kafka.endpoint), kafka.endpoint)  # pyright: ignore[reportCallIssue]
    await make_topics(client, "", {TOPIC: 1})
    environment = {
        "EDEN_KAFKA_BOOTSTRAP": kafka.endpoint,
        "EDEN_MONGODB_URI": "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=200",
    }
    command = (sys.executable, "-m", "eden_memory.cli.main", "tap", TOPIC, "--json")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=pipe, stderr=pipe)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(120):
            await _publish(client, "first")
            assert json.loads(await process.stdout.readline())["subject"] == "first"
            await asyncio.to_thread(kafka.kill)
            said = [await process.stderr.readline()]
            await asyncio.to_thread(kafka.start)
            said.append(await process.stderr.readline())
            await _publish(client, "second")
            assert json.loads(await process.stdout.readline())["subject"] == "second"
    finally:
        process.terminate()
        _, rest = await process.communicate()
        await asyncio.to_thread(kafka.stop)
    assert b"Kafka does not answer" in said[0]
    assert b"Kafka answers again" in said[1]
    assert rest == b""


async def _publish(client: dict[str, object], subject: str) -> None:
    headers = Envelope(subject, "FactChanged", 1, "test", NOON, subject, "user:s.a:s.u").headers()
    publisher = Publisher(lambda: new_producer(client))
    await publisher.start()
    await publisher.publish([StoredRecord(TOPIC, b"u", subject.encode(), None, tuple(headers))])
    await publisher.stop()
