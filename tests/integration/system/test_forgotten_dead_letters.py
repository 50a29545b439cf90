"""Forgetting a session ends the dead letters that hold its text, and reports those that nobody can read."""

import asyncio
import json
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from eden_memory.settings import Settings
from tests.integration.kafka_limits import limit
from tests.integration.system.canary_scans import until_erased
from tests.integration.system.commands import eden
from tests.integration.system.running_system import System, fast, stages, system, until
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers
WORD = "Zanzibar"
BEFORE = {"chat.messages": 1, "memory.candidates": 1, "memory.facts": 2}
AFTER = {"memory.candidates": 1, "memory.facts": 1}


async def test_dead_letters_of_a_session_end_with_it(
    settings: Settings, shared_models: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    settings = fast(settings, shared_models)
    async with system(settings, shared_models, run=False) as running:
        facts = settings.kafka.topic_prefix + "memory.facts"
        await asyncio.to_thread(limit, settings, facts, 700)
        async with stages(settings):
            session, other = await running.session("xan"), await running.session("yul")
            await running.write(session, "xan", f"fact user: Xan digs at {WORD}.")
            await running.write(other, "yul", "fact user: Yul lives in Bergen.")
            await running.source["messages"].insert_one(
                {"session_id": session, "role": "user", "user_id": "xan", "content": len(WORD)}
            )
            await _unreadable(running)
            await running.form(session)
            await running.form(other)
            await until(lambda: _listed(settings, BEFORE), "4 letters")
            said = await eden(settings, "forget", "session", session, "--yes")
            assert "memory.candidates: 1 dead letters cannot be read and name no message" in said
            await until_erased(running, WORD.encode())
            await until(lambda: _listed(settings, AFTER), "2 letters are left")
            held = [letter.value for letter in await running.letters("memory.facts")]
    assert any(b"Bergen" in value for value in held if value)
    assert WORD not in caplog.text


async def _unreadable(running: System) -> None:
    """A record that another program wrote."""
    producer: Any = AIOKafkaProducer(**running.client)
    await producer.start()
    try:
        await producer.send_and_wait(running.settings.kafka.topic_prefix + "memory.candidates", b"\xff", b"x")
    finally:
        await producer.stop()


async def _listed(settings: Settings, wanted: dict[str, int]) -> bool:
    lines = (await eden(settings, "dead", "list", "--json")).splitlines()
    topics = [json.loads(line)["topic"] for line in lines if line.startswith("{")]
    short = [topic.removeprefix(settings.kafka.topic_prefix) for topic in topics]
    return {topic: short.count(topic) for topic in short} == wanted
