"""A weak model that gives one answer to everything: from chat writes to what the service lists, and the reasons."""

from collections.abc import AsyncGenerator

import pytest

from eden_memory.settings import Settings
from tests.integration.system.commands import eden
from tests.integration.system.obedient_model import NEW, obey
from tests.integration.system.running_system import AGENT, System, fast, system
from tests.model_server.script import Asked, Said
from tests.model_server.serving import serving

pytestmark = pytest.mark.servers
KNOWN = (
    "Ana lives in Porto.",
    "Ana has a cat called Mia.",
    "Ana works as a tram driver.",
    "Ana is allergic to peanuts.",
    "Ana plays the cello in an orchestra.",
    "Ana's birthday is on 3 March.",
    "Ana's sister studies law in Ghent.",
    "Ana drives a grey Volvo.",
    "Ana reads crime novels before bed.",
    "Ana pays 900 euros of rent each month.",
    "Ana's doctor is Dr. Okafor.",
    "Ana runs ten kilometres every Sunday.",
    "Ana banks with Triodos.",
)
NEWS = (
    "Ana bought a camera for the trip to Iceland.",
    "Ana's brother repairs clocks.",
    "Ana grows tomatoes on the balcony.",
    "Ana collects stamps from Japan.",
    "Ana votes at the school in Rua Nova.",
)


@pytest.fixture(params=["DELETE", *(pytest.param(one, marks=pytest.mark.slow) for one in ("UPDATE", "NONE"))])
async def stubborn(request: pytest.FixtureRequest, settings: Settings) -> AsyncGenerator[tuple[System, str]]:
    """A running system whose model decides so on every new fact, and compares it with whatever is stored."""

    def script(asked: Asked) -> Said:
        if asked.kind != "decisions":
            return obey(asked)
        return {
            "decisions": [
                {
                    "fact": label,
                    "decision": request.param,
                    "existing": near.split()[0],
                    "text": text if request.param == "UPDATE" else None,
                    "reason": "no longer true",
                }
                for label, near, text in NEW.findall(asked.user)
            ]
        }

    async with (
        serving(script) as models,
        system(fast(settings, models, memory={"similar": 0.0}), models) as running,
    ):
        yield running, request.param


async def test_nothing_unrelated_is_lost_new_facts_are_added_and_the_history_says_why(
    stubborn: tuple[System, str],
) -> None:
    running, decision = stubborn
    session = await running.session("ana")
    for texts in (KNOWN, NEWS):
        await running.told(session, "ana", *(f"fact user: {text}" for text in texts))
    facts = (await running.service.list_facts(user="ana", active=None, limit=100)).items
    assert {fact.content for fact in facts if fact.retired_at is None} == {*KNOWN, *NEWS}
    assert len(facts) == len(KNOWN) + len(NEWS)
    added = [fact for fact in facts if fact.content in NEWS]
    histories = [await running.service.history(fact.fact_id, user="ana") for fact in added]
    reasons = [version.reason or "" for history in histories for version in history.versions]
    assert len(reasons) == len(NEWS)
    assert all(reason.startswith(f"the model answered {decision}, but ") for reason in reasons)
    assert all(reason.endswith("too little in common") for reason in reasons)
    printed = await eden(running.settings, "history", added[0].fact_id, "--user", "ana", "--agent", AGENT)
    assert f"ADD: the model answered {decision}" in " ".join(printed.split())


async def test_what_does_replace_a_fact_still_does(stubborn: tuple[System, str]) -> None:
    running, decision = stubborn
    session = await running.session("ana")
    texts = ("Ana works as a tram driver.", "Ana works as a ferry pilot.")
    await running.told(session, "ana", f"fact user: {texts[0]}")
    await running.write(session, "ana", f"fact user: {texts[1]}")
    await running.form(session)
    wanted = [texts[0] if decision == "NONE" else texts[1]]
    await running.shows(session, "ana", *wanted)
    assert await running.facts("ana") == wanted
