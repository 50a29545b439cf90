"""EDEN_FORMATION_CALLS=one from chat writes to a door: a window is asked about once, for both kinds of memory."""

import pytest

from eden_memory.formation import prompts
from eden_memory.schemas.events import FactsExtracted, ReflectionFormed
from eden_memory.settings import Settings
from tests.integration.system.running_system import fast, system
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers


async def test_a_window_costs_one_call_and_shows_facts_and_reflections(
    settings: Settings, shared_models: Serving
) -> None:
    shared_models.tally.calls.clear()
    one = fast(settings, shared_models).model_copy(update={"formation_calls": "one"})
    async with system(one, shared_models) as running:
        session = await running.session("ada")
        await running.write(session, "ada", "MARK-1 is in Lisbon.", "Keep it short, please.")
        await running.form(session)
        xml = await running.shows(session, "ada", "MARK-1 was mentioned is in Lisbon.")
        assert "Prefers short answers" in xml
        assert "The session is about" in xml
        calls = shared_models.tally.calls
        assert (calls["memory"], calls["facts"], calls["reflections"]) == (1, 0, 0)
        events = [
            record.event
            for topic in ("memory.extractions", "memory.reflections")
            for record in await running.records(topic)
        ]
        named = [event.call for event in events if isinstance(event, FactsExtracted | ReflectionFormed)]
        assert {call and call.prompt for call in named} == {prompts.MEMORY_EXTRACTION}
        assert len({call.call_id for call in named if call}) == 1
