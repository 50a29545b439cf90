"""Models that answer badly, not at all, or never: nothing is lost, and what cannot be done is given up once."""

import json
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import replace
from functools import partial

import pytest

from eden_memory import handlers
from eden_memory.domain.stage import RetryPolicy
from eden_memory.models.factory import Models
from eden_memory.mongo.ids import encode_id
from eden_memory.runtime.stages import worker
from eden_memory.runtime.stages.standing import Standing
from eden_memory.settings import Settings
from schemas.events import FactsExtracted, FactsProposed, ModelCalled
from tests.integration.formation.commands import eden
from tests.integration.formation.obedient_model import WORD, obey
from tests.integration.formation.running_system import System, fast, system, until
from tests.model_server.config import FaultName
from tests.model_server.script import Asked, Said
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers
MOST_CALLS = 6
CURED = "answerable"


@pytest.fixture(scope="module")
async def shared(shared_settings: Settings, shared_models: Serving) -> AsyncGenerator[System]:
    """A provider that is away, and a stage that stands still for it, look more often whether it is back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handlers, "Models", partial(Models, probe_waits=(0.1, 0.4)))
        patch.setattr(worker, "Standing", partial(Standing, probes=RetryPolicy(first=0.1, cap=0.5)))
        async with system(fast(shared_settings, shared_models), shared_models) as running:
            yield running


async def calls(shared: System) -> Counter[tuple[str, str | None]]:
    """Calls by stage and the event that they were made for; those refused for their rate cost nothing.

    Pings are made for no event, and as many as it takes: early failures of several units look like an outage. A call
    whose answer is found again by a later attempt is told again, as the same record.
    """
    events = [one.event for one in await shared.records("memory.usage")]
    made = {one.call_id: one for one in events if isinstance(one, ModelCalled) and one.cause is not None}
    paid = [one for one in made.values() if one.outcome != "rate_limited"]
    return Counter((one.stage, one.cause) for one in paid)


async def test_faults_of_three_kinds_lose_nothing(shared: System, models: Serving) -> None:
    rates: dict[FaultName, float] = {"truncated": 0.1, "error": 0.1, "rate_limited": 0.1}
    models.change(rates=rates, embedding_rates={"error": 0.1, "rate_limited": 0.1}, retry_after=0.2)
    sessions = [await shared.session(f"user-{n}") for n in range(24)]
    said = [
        await shared.write(one, f"user-{n}", f"fact user: Berth {n} is free.", f"note user: Likes {n}.")
        for n, one in enumerate(sessions)
    ]
    for one in sessions:
        await shared.form(one)
    await shared.formed([name for names in said for name in names], 2 * len(sessions))
    outcomes = models.tally.outcomes
    drawn = rates.keys() & {*outcomes["facts"], *outcomes["reflections"]}
    assert len(drawn) >= 2, "of some fifty calls one in ten meets each of them"
    assert await shared.dead() == []
    assert max((await calls(shared)).values()) <= MOST_CALLS
    for n in range(24):
        assert await shared.facts(f"user-{n}") == [f"Berth {n} is free."]


async def test_what_can_never_succeed_is_given_up_once_and_its_reflections_are_formed(
    shared: System,
) -> None:
    session = await shared.session("una")
    names = await shared.write(
        session, "una", f"fact user: Una is {WORD}.", "note session: The talk is about Una."
    )
    await shared.form(session)
    await shared.shows(session, "una", "The talk is about Una.")
    assert await shared.facts("una") == []
    (dead,) = await shared.dead()
    assert dead["stage"] == "fact-extraction"
    letters = await shared.records("memory.formations.dead")
    assert len(letters) == 1
    assert max((await calls(shared)).values()) <= MOST_CALLS
    await _asked_anew(shared, session, names)


async def _asked_anew(shared: System, session: str, names: list[str]) -> None:
    """`eden dead retry`: the answers so far are not reused, and what was acted on is not published again."""
    before = shared.models.tally.calls["facts"]
    shared.models.script = cured
    await eden(shared.settings, "dead", "retry", "--stage", "fact-extraction", "--yes")
    await shared.formed(names, 2)
    assert await shared.facts("una") == [f"Una is {WORD}."]
    assert shared.models.tally.calls["facts"] == before + 1
    extracted = [one for one in await shared.records("memory.extractions") if one.value is not None]
    of_session = [one.event for one in extracted if isinstance(one.event, FactsExtracted)]
    mine = [one for one in of_session if one.window.session_id == encode_id(session)]
    assert [one.outcome for one in mine] == ["failed"]
    proposed = [one.event for one in await shared.records("memory.candidates") if one.value is not None]
    again = [
        one
        for one in proposed
        if isinstance(one, FactsProposed) and one.formation_id == mine[0].window.formation_id
    ]
    assert [one.attempt for one in again] == [2]
    assert len(await shared.contents("reflections", session_ids=encode_id(session))) == 1


def cured(asked: Asked) -> Said:
    """Obeys, whatever stands in the messages."""
    found = obey(replace(asked, user=asked.user.replace(WORD, CURED)))
    assert isinstance(found, dict)
    return json.loads(json.dumps(found).replace(CURED, WORD))


async def test_a_full_outage_gives_up_nothing_and_ends_by_itself(shared: System, models: Serving) -> None:
    given_up = len(await shared.dead())
    models.change(outage=True)
    sessions = [await shared.session(f"out-{n}") for n in range(6)]
    said = [
        name
        for n, one in enumerate(sessions)
        for name in await shared.write(
            one, f"out-{n}", f"fact user: Dock {n} is shut.", "note session: Wait."
        )
    ]
    for one in sessions:
        await shared.form(one)
    before = sum(models.tally.calls.values())

    async def asked_in_vain() -> bool:
        return sum(models.tally.calls.values()) >= before + 25

    await until(asked_in_vain, "the provider was asked again and again whether it is back")
    assert len(await shared.dead()) == given_up
    models.change(outage=False)
    await shared.formed(said, len(said))
    assert len(await shared.dead()) == given_up
