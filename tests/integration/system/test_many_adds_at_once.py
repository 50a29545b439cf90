"""Texts that are added at the same time for one user share windows, and each becomes memory once."""

import asyncio

import pytest

from eden_memory.schemas.events import FormationRequested
from eden_memory.settings import Settings
from tests.integration.system.running_system import System, fast, system, until
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers
ADDS = 20


async def test_adds_that_wait_share_windows_and_each_becomes_memory_once(
    settings: Settings, models: Serving
) -> None:
    async with system(fast(settings, models), models) as running:
        await running.service.add("fact user: Una has a desk.", user="una")
        await until(lambda: has(running, 1), "the first text is formed")
        models.change(base_seconds=1.0)
        models.tally.calls.clear()
        texts = [f"Una owns book number {n}." for n in range(ADDS)]
        added = await asyncio.gather(
            *(running.service.add(f"fact user: {text}", user="una") for text in texts)
        )
        await until(lambda: has(running, ADDS + 1), "each text is a fact")
        assert sorted(await running.facts("una")) == sorted(["Una has a desk.", *texts])
        asked = [one.event for one in await running.records("memory.formations")]
        windows = [one for one in asked if isinstance(one, FormationRequested)][1:]
        members = [message.message_id for window in windows for message in window.messages]
        assert sorted(members) == sorted(name for one in added for name in one.request_ids)
        assert len(windows) <= ADDS // 2, "windows are shared"
        assert models.tally.calls["facts"] == len(windows)


async def has(running: System, number: int) -> bool:
    return len(await running.facts("una")) == number
