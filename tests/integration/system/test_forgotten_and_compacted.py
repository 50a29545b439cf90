"""A word that was said, formed, merged, consolidated and searched is forgotten: nothing of it is left anywhere."""

import asyncio
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from eden_memory.app.system import housekeeping
from eden_memory.kafka.topic_admin import TopicAdmin
from eden_memory.settings import Settings
from tests.integration.system.canary_scans import nothing_left_after_compaction, until_erased
from tests.integration.system.commands import eden, kill, start
from tests.integration.system.running_system import System, fast, stages, system, until
from tests.model_server.serving import Serving

pytestmark = [pytest.mark.servers, pytest.mark.slow]
WORD = b"Zanzibar"


async def test_nothing_is_left_anywhere_of_what_was_forgotten(
    settings: Settings, shared_models: Serving, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    settings = fast(settings, shared_models)
    async with system(settings, shared_models, run=False) as running:
        async with stages(settings):
            session, other = await running.session("xan"), await running.session("yul")
            await running.told(
                session,
                "xan",
                "fact user: Xan digs at Zanzibar same-dig.",
                *(f"note user: Xan likes Zanzibar {n}." for n in range(4)),
            )
            await running.told(other, "yul", "fact user: Yul lives in Bergen.")
            later = await running.session("xan")
            await running.told(later, "xan", "fact user: Xan digs for gold same-dig.")
            await running.shows(session, "xan", "Zanzibar", "<Consolidated>")
            assert await running.service.search_facts(["Xan digs at Zanzibar"], session=session, user="xan")
            assert "Asked." in await eden(settings, "forget", "session", session, "--yes")
            await running.shows(session, "xan", "Xan digs for gold", without=["Zanzibar"])
            await until_erased(running, WORD)
            own = await _own_settings(running)
            await _killed_while_compacting(running, tmp_path)
            assert "restored what `eden forget --compact` had lowered" in await eden(
                settings, "topics", "apply"
            )
            assert await _own_settings(running) == own
            await _killed_while_compacting(running, tmp_path)
            await _restored_by_the_janitor(running, own)
            await nothing_left_after_compaction(running, WORD)
            assert await _own_settings(running) == own
        assert WORD.decode() not in caplog.text
        assert WORD not in generate_latest()
        kept = [one.value for one in await running.records("memory.facts")]
    assert [value for value in kept if value is not None and b"Bergen" in value]


async def _own_settings(running: System) -> dict[str, dict[str, str]]:
    admin = await asyncio.to_thread(TopicAdmin, running.admin)
    return await asyncio.to_thread(admin.overrides, admin.names(running.settings.kafka.topic_prefix))


async def _killed_while_compacting(running: System, folder: Path) -> None:
    """`kill -9` once the settings of topics are lowered."""
    own = await _own_settings(running)
    process = await start(running.settings, folder / "compact.log", "forget", "--compact")

    async def lowered() -> bool:
        return await _own_settings(running) != own

    await until(lowered, "settings are lowered")
    await kill(process)
    assert await running.memory("lowered_topics").count_documents({})


async def _restored_by_the_janitor(running: System, own: dict[str, dict[str, str]]) -> None:
    """As `eden run` does when it starts."""
    janitor = housekeeping(running.settings, running.database.client)

    async def restored() -> bool:
        return await _own_settings(running) == own

    working = asyncio.create_task(janitor.run())
    await until(restored, "the settings are restored")
    janitor.stop()
    await working
