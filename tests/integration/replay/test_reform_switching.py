"""A reform made live and left again: nothing forgotten comes back, nothing people changed stays behind."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from eden_memory.assembly.stage_parts import stage_parts
from eden_memory.cli.replay.namespace import carried, rolled_back, switched_to
from eden_memory.errors import EdenError
from eden_memory.names import ORIGINAL, Placement
from eden_memory.processors import pipeline
from eden_memory.processors.pipeline import ATLAS_WRITER, FACT_DEDUP, FORGETTING, WEBHOOKS
from eden_memory.replay.installation import installation
from eden_memory.replay.namespaces import switching
from eden_memory.replay.namespaces.switching import switch
from eden_memory.replay.reform.namespace_reform import Formed, ReformRequest, ReformStep, Switched
from eden_memory.replay.reform.namespace_reform import reform as reform_steps
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from eden_memory.source.inbox_store import ask
from tests.integration.replay.reform_kit import placed, reform
from tests.integration.replay.test_switching import Held, running
from tests.integration.stages_on_servers import running as running_parts
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import System, fast, stages, system, until
from tests.model_server.serving import serving

pytestmark = pytest.mark.servers
NAME = "anew"
UNDECIDED = [name for name in pipeline.NAMES if name != FACT_DEDUP]
"""The stages, so that edits of facts wait."""
ANA = Scope.of_user("s.helper", "s.ana")
TREE, GATE = "ana has planted the old tree at the west end", "ana paints the small gate green"
NUTS, OAK = "ana is allergic to nuts", "ana has planted two oaks"


async def command(found: System, action: str, fact_id: str | None, text: str | None) -> None:
    """As the API writes what a person asks."""
    asked: dict[str, Any] = {
        "kind": "fact_command",
        "scope": ANA.model_dump(),
        "action": action,
        "fact_id": fact_id,
        "text": text,
        "by": "person",
        "asked_by": "ann",
    }
    await ask(found.database[found.settings.names["inbox"]], asked)


async def is_live(found: System, name: str) -> bool:
    async with installation(found.settings) as at:
        return (await at.live.placement()).memory == name


async def true(value: bool) -> bool:
    return value


async def test_what_was_forgotten_before_a_switch_is_gone_at_it_and_what_people_change_goes_back(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving(obey) as models, system(fast(settings, models), models, run=False) as found:
        here, there = Held(found, Placement()), Held(found, Placement(NAME, NAME))
        async with stages(found.settings):
            await _switched_while_forgetting(found, here, there)

        async with running(found.settings) as placed_parts:
            await until(lambda: true(placed_parts.state().ready), "ready")
            row = await there.facts.find_one({"content": GATE, "active": True})
            assert row is not None
            await command(found, "add", None, NUTS)
            await command(found, "edit", row["_id"], OAK)
            await there.holds(NUTS, OAK)
            await here.holds(GATE)
            await rolled_back(found.settings)
            said = capsys.readouterr().out
            assert f"{ORIGINAL} is live again" in said
            assert "2 applied again, 0 there already, 0 match nothing" in said
            await here.holds(NUTS, OAK)
            await carried(found.settings, NAME)
            assert "0 applied again, 2 there already" in capsys.readouterr().out


@pytest.mark.slow
async def test_what_people_change_between_the_end_of_a_reform_and_its_switch_is_in_it(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    """As while `--eval` asks its questions, or the command waits for an answer."""
    async with (
        serving(obey) as models,
        system(fast(settings, models), models, run=False) as found,
        running(found.settings),
    ):
        here, there = Held(found, Placement()), Held(found, Placement(NAME, NAME))
        session = await found.session("ana")
        await found.told(session, "ana", f"fact user: {TREE}", f"fact user: {GATE}")
        async with aclosing(switching_reform(found)) as steps:
            async for step in steps:
                if isinstance(step, Formed):
                    assert not step.user_edits.settled
                    await changed_by_ana(found, here)
                    await here.holds(OAK, GATE, NUTS)
                if isinstance(step, Switched):
                    assert step.switchover.edits is not None
                    assert len(step.switchover.edits.of("applied")) == 2
        assert await is_live(found, NAME)
        await there.holds(OAK, GATE, NUTS)
        await until(lambda: is_private(there, GATE), "private in the reform, too")
        await carried(found.settings, ORIGINAL)
        assert "0 applied again, 2 there already" in capsys.readouterr().out


@pytest.mark.slow
async def test_a_switch_waits_for_what_people_asked_and_a_rollback_says_what_it_leaves(
    settings: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switching, "PATIENCE_SECONDS", 2.0)
    async with serving(obey) as models, system(fast(settings, models), models, run=False) as found:
        here, there = Held(found, Placement()), Held(found, Placement(NAME, NAME))
        async with stages(found.settings):
            session = await found.session("ana")
            await found.told(session, "ana", f"fact user: {TREE}", f"fact user: {GATE}")
        async with stages(found.settings, UNDECIDED):
            await command(found, "add", None, NUTS)
            with pytest.raises(EdenError, match="1 changes that people asked for wait for fact-dedup"):
                await reform(found.settings, NAME, switch=True)
            assert await is_live(found, ORIGINAL)
        async with stages(found.settings):
            await here.holds(TREE, GATE, NUTS)
            ended, said = await reform(found.settings, NAME, switch=True)
            assert ended == "switched", said
        async with stages(placed(found.settings, NAME)):
            await there.holds(TREE, GATE, NUTS)
        async with stages(placed(found.settings, NAME), UNDECIDED):
            await command(found, "add", None, OAK)
            async with stage_parts(found.settings, (FORGETTING, ATLAS_WRITER)) as parts, running_parts(parts):
                await rolled_back(found.settings)
        out, err = capsys.readouterr()
        assert f"{ORIGINAL} is live again" in out
        assert "1 changes that people asked for wait for fact-dedup; original does not get them" in err


def switching_reform(found: System) -> AsyncGenerator[ReformStep]:
    """`eden reform anew --switch`, step by step."""
    return reform_steps(
        found.settings, NAME, ReformRequest(switch=True), lambda read, whole: None, lambda progress: None
    )


async def changed_by_ana(found: System, here: Held) -> None:
    """She edits a fact, adds one, and marks one as private."""
    rows = {row["content"]: row["_id"] async for row in here.facts.find()}
    await command(found, "edit", rows[TREE], OAK)
    await command(found, "add", None, NUTS)
    await found.service.mark_private(rows[GATE], user="ana")
    await until(lambda: is_private(here, GATE), "private in live memory")


async def is_private(held: Held, content: str) -> bool:
    return await held.facts.find_one({"content": content, "private": True}) is not None


async def _switched_while_forgetting(found: System, here: Held, there: Held) -> None:
    """The switch waits for the forgetting of what is to become live, which begins to run only then."""
    session = await found.session("ana")
    (first, _) = await found.told(session, "ana", f"fact user: {TREE}", f"fact user: {GATE}")
    ended, said = await reform(found.settings, NAME)
    assert ended == "formed", said
    with pytest.raises(EdenError, match="not in it yet"):
        await switched_to(found.settings, NAME)
    with pytest.raises(EdenError, match="cannot be compared"):
        await switched_to(other_vectors(found.settings), NAME, as_it_is=True)
    await found.forget("message", first)
    await here.holds(GATE)
    assert await there.texts() == sorted([TREE, GATE]), "nobody runs it yet"
    async with installation(found.settings) as at:
        switching = asyncio.create_task(switch(at, NAME))
        done, _ = await asyncio.wait([switching], timeout=2)
        assert not done
        assert await is_live(found, ORIGINAL)
        own = placed(found.settings, NAME)
        async with stage_parts(own, (FORGETTING, ATLAS_WRITER)) as parts, running_parts(parts):
            await switching
            assert await there.texts() == [GATE], "gone when it is live, not later"
        async with at.groups as groups:
            told_from = await groups.committed(at.topics(own.placement).group(WEBHOOKS))
            assert any(told_from.values()), "webhooks are not told of what the reform formed"


def other_vectors(settings: Settings) -> Settings:
    """Another model of vectors is configured."""
    return settings.model_copy(
        update={"models": settings.models.model_copy(update={"embeddings": "another-embedding"})}
    )
