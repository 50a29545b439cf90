"""`eden run` says once how many memories the first messages have become."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from eden_memory import metrics
from eden_memory.app.system import lag_export
from eden_memory.observability import lag_export as lag_reading
from eden_memory.observability.watching import FormationProgress, watching
from eden_memory.settings import Settings
from tests.integration.system.running_system import System, fast, stages, system, until
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers
SAID = "first messages formed"


@asynccontextmanager
async def exporting(running: System) -> AsyncGenerator[None]:
    """The part of `eden run` that reads lag."""
    part = lag_export(running.settings, running.database.client)
    work = asyncio.create_task(part.run())

    async def read() -> bool:
        (gauge,) = metrics.LAG_READ_AT.collect()
        return gauge.samples[0].value > 0

    try:
        await until(read, "the first reading")
        yield
    finally:
        part.stop()
        await work


async def test_the_first_memories_are_counted_once(
    settings: Settings,
    shared_models: Serving,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lag_reading, "EVERY_SECONDS", 0.5)

    async def said() -> bool:
        return SAID in caplog.text

    with caplog.at_level(logging.INFO, "eden_memory"):
        async with system(fast(settings, shared_models), shared_models, run=False) as waiting:
            session = await waiting.session("ana")
            texts = "fact user: Ana keeps bees.", "fact user: Ana lives in Faro.", "note user: Wants lists."
            await waiting.write(session, "ana", *texts)
            await waiting.form(session)
            async with exporting(waiting), stages(waiting.settings):
                await until(said, "the count of memories")
                await waiting.told(session, "ana", "fact user: Ana sings.")
    assert [line for line in caplog.text.splitlines() if SAID in line and "facts=2 reflections=1" in line]
    assert caplog.text.count(SAID) == 1


async def test_who_watches_sees_the_messages_that_come_from_then_on(
    settings: Settings, shared_models: Serving
) -> None:
    async with system(fast(settings, shared_models), shared_models) as running:
        session, progress = await running.session("ana"), FormationProgress()
        await running.told(session, "ana", "fact user: Ana keeps bees.", "fact user: Ana lives in Faro.")
        async with watching(running.settings, progress):
            await running.told(session, "ana", "fact user: Ana sings.")

            async def seen() -> bool:
                return bool(progress.messages)

            await until(seen, "the message is counted")
            assert (progress.messages, progress.decisions) == (1, {"ADD": 1})
