"""Topics that somebody else changes, and requests about them that Kafka refuses, while `eden run` runs."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions  # pyright: ignore[reportPrivateImportUsage]

from eden_memory.app.system import consumption
from eden_memory.housekeeping.consumption_store import ConsumptionMark, ConsumptionMarks
from eden_memory.kafka.groups import GroupAdmin
from eden_memory.kafka.topic_admin import TopicAdmin
from eden_memory.kafka.topic_reading import TopicOffsets
from eden_memory.kafka.topics import load_topics
from eden_memory.settings import Settings
from eden_memory.stages.outcome import StoredRecord
from eden_memory.stages.publishing import Publisher, new_producer
from tests.awaiting import until
from tests.integration.system import commands
from tests.integration.system.commands import kill, start
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import System, fast, system
from tests.model_server.serving import serving

pytestmark = pytest.mark.servers
SESSIONS, GROWN = 6, 12
LOOKS_OFTEN = """
from eden_memory.housekeeping import topics_check
topics_check.EVERY_SECONDS = 1.0
from eden_memory.cli.main import main
main()
"""


@pytest.fixture
async def idle(settings: Settings) -> AsyncIterator[System]:
    """A namespace that is set up, and in which nothing runs."""
    async with serving(obey) as models, system(fast(settings, models), models, run=False) as idle:
        yield idle


async def told(running: System, sessions: Sequence[str], what: str) -> None:
    """Have every session say something, and wait until it is formed."""
    said: list[str] = []
    for number, session in enumerate(sessions):
        said += await running.write(session, f"u{number}", f"fact user: {what} {number}.")
        await running.form(session)
    await running.formed(said, len(sessions))


async def ended(running: System, log: Path, *arguments: str) -> tuple[int, str]:
    """Run a command to its end; its exit code and what it said."""
    process = await start(running.settings, log, *arguments)
    code = await asyncio.wait_for(process.wait(), 90)
    return code, log.read_text()  # noqa: ASYNC240 - the command has ended


def grow(running: System) -> None:
    """Add partitions to every topic, as `kafka-topics.sh --alter` does."""
    admin: Any = AdminClient(running.admin)
    names = [topic.name for topic in load_topics(running.settings.kafka)]
    for done in admin.create_partitions([NewPartitions(name, GROWN) for name in names]).values():
        done.result(30)


async def test_added_partitions_stop_and_refuse_eden_run_until_they_are_left_unused(
    idle: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "EDEN", (sys.executable, "-c", LOOKS_OFTEN))
    sessions = [await idle.session(f"u{number}") for number in range(SESSIONS)]
    log = tmp_path / "run.log"
    process = await start(idle.settings, log, "run")
    try:
        await told(idle, sessions, "Before")
        await asyncio.to_thread(grow, idle)
        assert await asyncio.wait_for(process.wait(), 90) == 1
    finally:
        await kill(process)
    name = idle.settings.kafka.topic_prefix + "chat.messages"
    reason = f"{name} has {GROWN} partitions and had 2"
    assert reason in log.read_text()
    assert "eden topics apply" in log.read_text()

    for number, command in enumerate(["run", "doctor"]):
        code, said = await ended(idle, tmp_path / f"{number}.log", command)
        assert code == 1
        assert reason in " ".join(said.split())
        assert "eden topics apply" in said

    code, said = await ended(idle, tmp_path / "apply.log", "topics", "apply")
    assert (code, f"{name}: keys stay in its first 2 partitions" in said) == (1, True), said
    process = await start(idle.settings, log, "run")
    try:
        await told(idle, sessions, "After")
        for number in range(SESSIONS):
            assert await idle.facts(f"u{number}") == [f"After {number}.", f"Before {number}."]
        assert {record.partition for record in await idle.records("chat.messages")} == {0, 1}
    finally:
        await kill(process)


@pytest.mark.slow
async def test_eden_run_goes_on_while_kafka_refuses_to_delete_consumed_records(
    idle: System, tmp_path: Path
) -> None:
    topics, now = load_topics(idle.settings.kafka), datetime.now(UTC)
    topic, declared = topics.name("memory.candidates"), consumption(idle.settings)
    publisher = Publisher(lambda: new_producer(idle.client))
    await publisher.start()
    await publisher.publish([StoredRecord(topic, b"scope", b"key-%d" % n, b"{}", ()) for n in range(10)])
    await publisher.stop()
    async with TopicOffsets(idle.client, [topic]) as offsets, GroupAdmin(idle.client) as groups:
        ends = await offsets.ends()
        for group in declared.readers[topic]:
            await groups.commit(group, ends)
    reached = {(tp.topic, tp.partition): end for tp, end in ends.items()}
    committed = dict.fromkeys(declared.readers[topic], reached)
    ids = await asyncio.to_thread(TopicAdmin(idle.admin).ids, [topic])
    marks = ConsumptionMarks(idle.database, idle.settings.names)
    await marks.add(ConsumptionMark(now - timedelta(days=8), reached, committed, ids))
    admin, log = TopicAdmin(idle.admin), tmp_path / "run.log"
    await asyncio.to_thread(admin.configure, {topic: {"cleanup.policy": "compact"}})
    process = await start(idle.settings, log, "run", "janitor")
    try:
        await until(
            lambda: process.returncode is not None or "Policy violation" in log.read_text(), "a refusal"
        )
        assert process.returncode is None, log.read_text()
        await asyncio.to_thread(admin.configure, {topic: {"cleanup.policy": "compact,delete"}})

        async def deleted() -> bool:
            async with TopicOffsets(idle.client, [topic]) as offsets:
                return await offsets.begins() == ends

        await until(deleted, "the next attempt")
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 60) == 0, log.read_text()
    finally:
        await kill(process)


async def test_a_topic_that_kafka_would_empty_is_refused(idle: System, tmp_path: Path) -> None:
    name = idle.settings.kafka.topic_prefix + "memory.facts"
    await asyncio.to_thread(TopicAdmin(idle.admin).configure, {name: {"cleanup.policy": "delete"}})
    code, said = await ended(idle, tmp_path / "run.log", "run", "lag")
    assert (code, f"{name} has cleanup.policy delete, not compact" in said) == (1, True), said
    assert "eden topics apply" in said
