"""Forgetting runs whole while a stage decides, or stores what it has decided: nothing of it stays behind."""

import asyncio
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from eden_memory.mongo.ids import encode_id
from eden_memory.processors import pipeline
from eden_memory.settings import Settings
from eden_memory.stages.outcome_store import MongoLedger
from tests.integration.system.commands import environment
from tests.integration.system.held_process import holding, holds
from tests.integration.system.running_system import System, fast, stages, system, until
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers
HELD = (
    pipeline.FACT_EXTRACTION,
    pipeline.FACT_DEDUP,
    pipeline.REFLECTION_EXTRACTION,
    pipeline.CONSOLIDATION,
)
TOPICS = ("chat.messages", "extractions", "candidates", "facts", "reflections", "consolidations")


async def said(running: System, session: str, user: str, word: str) -> str:
    """Say, form and consolidate a fact and a reflection; return the message's id."""
    (name,) = await running.write(
        session, user, f"fact user: {word} lies here.\nnote session: {word} matters."
    )
    await running.form(session)
    return name


async def forgotten(running: System, message: str) -> None:
    """Return once forgetting has published the tombstones of a message."""

    async def ended() -> bool:
        records = await running.records("chat.messages")
        return any(record.key == encode_id(message) and record.value is None for record in records)

    await running.forget("message", message)
    await until(ended, "forgetting has run")


async def left(running: System, word: str) -> list[str]:
    """Where a word stands: in stored outcomes, and in what compaction leaves of the topics."""
    rows = await running.memory("outcomes").find().to_list()
    found = [f"outcome {row['_id']}" for row in rows if word in str(row)]
    for topic in (name if "." in name else f"memory.{name}" for name in TOPICS):
        newest = {record.key: record.value for record in await running.records(topic)}
        found += [f"{topic} {key}" for key, value in newest.items() if value and word.encode() in value]
    return found


async def is_gone(running: System, session: str, user: str, word: str) -> None:
    """Until nothing of a word is left behind what the same lanes have done since."""
    other = f"Other-{uuid4().hex[:6]}"
    await running.formed([await said(running, session, user, other)], 2)
    await running.end(session)

    async def consolidated() -> bool:
        return await running.memory("consolidated").count_documents({"content": {"$regex": other}}) == 1

    await until(consolidated, "the scope's lanes have gone on")
    found: list[str] = []

    async def so() -> bool:
        found[:] = await left(running, word)
        return not found

    try:
        await until(so, "nothing is left", 30)
    except AssertionError:
        pytest.fail(f"{word} is left in {found}")


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("stage", HELD)
async def test_forgetting_runs_whole_while_a_decision_is_stored(
    shared: System, monkeypatch: pytest.MonkeyPatch, stage: str, moment: str
) -> None:
    user, word = f"u-{uuid4().hex[:6]}", f"Mark-{uuid4().hex[:8]}"
    session = await shared.session(user)
    begun, go = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        begun.set()
        await go.wait()

    with monkeypatch.context() as patch:
        patch.setattr(MongoLedger, "store", holding(stage, word, moment, hold))
        message = await said(shared, session, user, word)
        if stage == pipeline.CONSOLIDATION:
            await shared.formed([message], 2)
            await shared.end(session)
        async with asyncio.timeout(60):
            await begun.wait()
        await forgotten(shared, message)
        go.set()
    await is_gone(shared, session, user, word)


@contextmanager
def finding(word: str, begun: asyncio.Event, go: asyncio.Event) -> Generator[None]:
    """Hold whoever finds a stored outcome with a word in it before it is used."""
    find = MongoLedger.find

    async def held(self: MongoLedger, stage: str, members: Any) -> Any:
        found = await find(self, stage, members)
        if any(holds(outcome, word) for outcome in found.values()):
            begun.set()
            await go.wait()
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MongoLedger, "find", held)
        yield


@pytest.mark.slow
async def test_forgetting_runs_whole_after_a_kill_between_store_and_publish(
    settings: Settings, models: Serving, tmp_path: Path
) -> None:
    quick = fast(settings, models, tailer={"lease_seconds": 2.0})
    word, at = "Mark-of-the-killed", tmp_path / "stored"
    async with system(quick, models, run=False) as running:
        session = await running.session("u")
        message = await said(running, session, "u", word)
        held = ("-m", "tests.integration.system.held_process", pipeline.FACT_EXTRACTION, word, str(at))
        process = await asyncio.create_subprocess_exec(sys.executable, *held, env=environment(quick))
        try:
            await until(lambda: exists(at), "the outcome is stored")
        finally:
            process.kill()
            await process.wait()
        begun, go = asyncio.Event(), asyncio.Event()
        with finding(word, begun, go):
            async with stages(quick):
                async with asyncio.timeout(90):
                    await begun.wait()
                await forgotten(running, message)
                go.set()
                await is_gone(running, session, "u", word)


async def exists(path: Path) -> bool:
    return path.exists()  # noqa: ASYNC240 - a moment
