"""A word that was said, formed, merged, consolidated and searched is forgotten: nothing of it is left anywhere."""

import pytest
from prometheus_client import generate_latest

from eden_memory.settings import Settings
from tests.integration.system.canary_scans import nothing_left_after_compaction, until_erased
from tests.integration.system.commands import eden
from tests.integration.system.running_system import fast, stages, system
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers
WORD = b"Zanzibar"


async def test_nothing_is_left_anywhere_of_what_was_forgotten(
    settings: Settings, shared_models: Serving, caplog: pytest.LogCaptureFixture
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
            await nothing_left_after_compaction(running, WORD)
        assert WORD.decode() not in caplog.text
        assert WORD not in generate_latest()
        kept = [one.value for one in await running.records("memory.facts")]
    assert [value for value in kept if value is not None and b"Bergen" in value]
