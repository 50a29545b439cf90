"""Memory that was propagated in one installation is imported by another one in which propagation is on, too."""

from collections import Counter
from pathlib import Path

import pytest

from eden_memory.formation import consolidation_rules
from eden_memory.processors import pipeline
from eden_memory.settings import Settings
from tests.integration.replay.reform_kit import quiet
from tests.integration.system.commands import eden
from tests.integration.system.running_system import System, stages, system
from tests.integration.system.test_groups_and_propagation import (
    CREW,
    PERSONAL,
    SHARED,
    WIDE,
    Judges,
    held,
    mapped,
    prepared,
)
from tests.integration.system.test_restored_from_nothing import settled
from tests.model_server.serving import serving

pytestmark = [pytest.mark.servers, pytest.mark.slow]
OTHERS = [name for name in pipeline.NAMES if name != pipeline.PROPAGATION]


async def test_what_was_judged_before_an_export_is_not_judged_again(
    settings: Settings, elsewhere: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consolidation_rules, "CONSOLIDATION_SECONDS", 0.0)
    model, file = Judges(), tmp_path / "memory.jsonl"
    async with serving(model) as models:
        async with system(mapped(settings, models), models) as one:
            session = await _with_group(one)
            await one.told(session, "ann", f"note user: {SHARED}", f"note user: {PERSONAL}")
            await one.shows(await one.session("bob", group_id="crew"), "bob", SHARED)
            await quiet(one)
            await eden(one.settings, "export", str(file))
        assert model.judged, "there is something to judge"
        model.judged = Counter()
        async with system(mapped(elsewhere, models), models, run=False) as other:
            await _with_group(other)
            async with stages(other.settings, OTHERS):
                await eden(other.settings, "import", "eden", str(file), "--yes")
                await settled(other)
            async with stages(other.settings):
                await quiet(other)
            assert model.judged == {}, "the import called no model, and neither does what follows"
            assert (await held(other, CREW), await held(other, WIDE)) == ([SHARED], [SHARED])
            made = [came.key for came in await other.records("memory.reflections")]
            assert len(made) == len(set(made)), "one value for each key"
            await eden(other.settings, "rebuild", "again", "--verify")


async def _with_group(one: System) -> str:
    await prepared(one, propagation=True)
    return await one.session("ann", id="anns", group_id="crew")
