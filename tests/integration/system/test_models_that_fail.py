"""Models that answer badly, not at all, or never: nothing is lost, and what cannot be done is given up once."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import replace
from functools import partial

import pytest
from prometheus_client import REGISTRY

from eden_memory.assembly import handlers, stage_parts
from eden_memory.assembly.model_factory import Models
from eden_memory.models import judging
from eden_memory.mongo.ids import encode_id
from eden_memory.schemas.events import FactsExtracted, FactsProposed, ModelCalled
from eden_memory.settings import Settings
from eden_memory.stages import worker
from eden_memory.stages.stage import RetryPolicy
from eden_memory.stages.stage_health import StageHealth
from tests.integration.system.commands import eden
from tests.integration.system.obedient_model import WORD, obey
from tests.integration.system.running_system import AGENT, Row, System, fast, system, until
from tests.model_server.config import FaultName
from tests.model_server.script import Asked, Fault, Said
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers
MOST_CALLS = 6
TOGETHER, OF_A_SCOPE = 2, 3
"""Invalid answers about all scopes of a window, and about one."""
PROVIDER_FAILED = {"rate_limited", "timed_out", "provider_error"}
CURED = "answerable"


@pytest.fixture(scope="module")
async def shared(shared_settings: Settings, shared_models: Serving) -> AsyncGenerator[System]:
    """A provider that is away, and a stage that stands still for it, look more often whether it is back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handlers, "Models", partial(Models, probe_waits=(0.1, 0.4)))
        patch.setattr(worker, "StageHealth", partial(StageHealth, probes=RetryPolicy(first=0.1, cap=0.5)))
        patch.setattr(stage_parts, "RETRY_SECONDS", 2.0)
        patch.setattr(judging, "HOLD", 1.0)
        patch.setattr(judging, "PROBES", RetryPolicy(first=0.1, cap=0.5))
        settings = fast(shared_settings, shared_models)
        async with system(settings, shared_models) as running:
            yield running


async def calls(shared: System) -> Counter[tuple[str, str | None]]:
    """Calls by stage and the event that they were made for; those that the provider failed are not counted.

    Pings are made for no event, and as many as it takes: early failures of several units look like an outage. A call
    whose answer is found again by a later attempt is told again, as the same record.
    """
    events = [one.event for one in await shared.records("memory.usage")]
    made = {one.call_id: one for one in events if isinstance(one, ModelCalled) and one.cause is not None}
    paid = [one for one in made.values() if one.outcome not in PROVIDER_FAILED]
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
    assert max((await calls(shared)).values()) <= TOGETHER + 3 * MOST_CALLS, "asked for by each scope at most"
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
    assert len(await shared.letters("memory.formations")) == 1
    assert max((await calls(shared)).values()) == TOGETHER + 2 * OF_A_SCOPE
    await _asked_anew(shared, session, names)


async def test_only_the_scope_without_an_answer_is_given_up_and_asked_for_again(shared: System) -> None:
    def script(asked: Asked) -> Said:
        broken = asked.kind == "facts" and "Ida" in asked.user and asked.labels != ("user",)
        return "nothing that could be read" if broken else obey(asked)

    shared.models.script = script
    try:
        session = await shared.session("ida")
        names = await shared.write(
            session, "ida", "fact user: Ida owns a dog.", "fact agent: The yard is old."
        )
        await shared.form(session)
        await shared.formed(names[:1], 1)
        await until(lambda: _given_up(shared), "the agent's part is given up")
        paid = shared.models.tally.calls["facts"]
    finally:
        shared.models.script = obey
    await eden(shared.settings, "dead", "retry", "--stage", "fact-extraction", "--yes")
    await shared.formed(names[1:], 1)
    assert await shared.contents("facts", scope="agent") == ["The yard is old."]
    assert await shared.facts("ida") == ["Ida owns a dog."]
    assert shared.models.tally.calls["facts"] == paid + 1


async def _given_up(shared: System) -> bool:
    reasons = [letter.reason for letter in await shared.letters("memory.formations")]
    return any(reason.startswith("parts of the window failed: agent: ") for reason in reasons)


async def test_of_an_answer_that_must_be_repaired_an_emoji_is_remembered(shared: System) -> None:
    def script(asked: Asked) -> Said:
        said = obey(asked)
        return json.dumps(said).replace("'", '"') if asked.kind in ("facts", "decisions") else said

    shared.models.script = script
    try:
        session = await shared.session("emma")
        await shared.told(session, "emma", "fact user: Emma said 'hi' same-wave \U0001f600.")
        await shared.told(
            session, "emma", "fact user: Emma said 'hi' same-wave \U0001f600 moreover on Monday."
        )
    finally:
        shared.models.script = obey
    assert await shared.facts("emma") == ['Emma said "hi" same-wave \U0001f600 moreover on Monday.']


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


def outages() -> float | None:
    """How often fact-extraction has stood still in an outage."""
    return REGISTRY.get_sample_value(
        "eden_stage_pauses_total", {"stage": "fact-extraction", "kind": "outage"}
    )


@pytest.mark.parametrize("fault", ["context_length", "refusal", "error", "rate_limited"])
async def test_bad_prompts_hold_up_nobody_and_are_given_up_while_others_succeed(
    shared: System, models: Serving, fault: FaultName
) -> None:
    def script(asked: Asked) -> Said:
        return Fault(fault) if asked.kind == "facts" and f"bad-{fault}" in asked.user else obey(asked)

    before, given_up = outages(), len(await shared.dead())
    faults = models.tally.outcomes["facts"]
    earlier = faults[fault]
    models.change(retry_after=0.05)
    shared.models.script = script
    try:
        for n in range(3):
            session = await shared.session(f"{fault}-{n}")
            await shared.write(session, f"{fault}-{n}", f"fact user: A prompt, bad-{fault}.")
            await shared.form(session)

        async def all_failed() -> bool:
            return faults[fault] >= earlier + 3

        await until(all_failed, "each bad prompt was asked")
        for n in range(300):
            session = await shared.session(f"well-{fault}-{n}")
            await shared.told(session, f"well-{fault}-{n}", f"fact user: Pier {n} is open.")
            assert "outage" not in shared.state("fact-extraction").what
            if len(await shared.dead()) >= given_up + 3:
                break
    finally:
        shared.models.script = obey
    assert len(await shared.dead()) == given_up + 3
    assert outages() == before, "the stage never stood still"
    assert shared.state("fact-extraction").ready
    if fault in ("context_length", "refusal"):
        assert faults[fault] - earlier <= 3 * 3, "what names the request is not asked again and again"


@pytest.mark.slow
async def test_a_bad_prompt_alone_waits_and_is_formed_once_it_is_answered(
    shared: System, models: Serving
) -> None:
    given_up, before = len(await shared.dead()), models.tally.outcomes["facts"]["error"]
    models.change(rules=[{"contains": "Jetty", "fault": "error"}])
    session = await shared.session("lone")
    names = await shared.write(session, "lone", "fact user: Jetty 1 is shut.")
    await shared.form(session)

    async def waits() -> bool:
        return models.tally.outcomes["facts"]["error"] >= before + 7 and (
            "wait for another attempt" in shared.state("fact-extraction").what
        )

    await until(waits, "it was asked more often than a unit has attempts")
    assert shared.state("fact-extraction").ready
    models.change(rules=[])
    await shared.formed(names, 1)
    assert len(await shared.dead()) == given_up


@pytest.mark.parametrize("fault", ["context_length", "error"])
async def test_a_failed_consolidation_leaves_one_dead_letter(
    shared: System, models: Serving, fault: FaultName
) -> None:
    user = f"merged-{fault}"

    def script(asked: Asked) -> Said:
        mine = asked.kind == "consolidation" and f"about {user}" in asked.user
        return Fault(fault) if mine else obey(asked)

    async def dead() -> list[Row]:
        return [one for one in await shared.dead() if one["stage"] == "consolidation"]

    before = len(await dead())
    shared.models.script = script
    try:
        session = await shared.session(user)
        await shared.told(session, user, *(f"note user: Thought {n} about {user}." for n in range(4)))
        for n in range(60):
            other = await shared.session(f"{user}-{n}")
            await shared.told(other, f"{user}-{n}", *(f"note user: Thought {one}." for one in range(4)))
            if len(await dead()) > before:
                break
        asked = models.tally.outcomes["consolidation"][fault]
        for n in range(3):  # each is a change of the scope that is still over its threshold
            await shared.told(session, user, f"fact user: Buoy {n} of {user} is red.")
    finally:
        shared.models.script = obey
    assert len(await dead()) == before + 1
    assert models.tally.outcomes["consolidation"][fault] == asked
    await shared.told(session, user, *(f"note user: Later thought {n}." for n in range(4)))

    async def merged() -> bool:
        blob = (await shared.snapshot(f"user:{encode_id(AGENT)}:{encode_id(user)}")).get("blob") or ""
        return f"Thought 0 about {user}." in blob

    await until(merged, "the fuller buffer is consolidated")
    assert len(await dead()) == before + 1


async def test_several_sessions_whose_answers_cannot_be_read_pause_the_stage_and_form_once_they_can(
    shared: System,
) -> None:
    def script(asked: Asked) -> Said:
        return "<html>Sign in to the proxy</html>" if asked.kind == "facts" else obey(asked)

    given_up, before = len(await shared.dead()), outages() or 0.0
    shared.models.script = script
    try:
        sessions = [await shared.session(f"proxy-{n}") for n in range(5)]
        said = [
            await shared.write(one, f"proxy-{n}", f"fact user: Quay {n} is dry.")
            for n, one in enumerate(sessions)
        ]
        for one in sessions:
            await shared.form(one)

        async def paused() -> bool:
            return (outages() or 0.0) > before

        await until(paused, "the stage stands still")
        assert "cannot be read" in shared.state("fact-extraction").what
        calls_then = shared.models.tally.calls["facts"]
        await asyncio.sleep(3 * judging.HOLD)
        assert shared.models.tally.calls["facts"] < calls_then + 20, "only probes are paid"
        assert len(await shared.dead()) == given_up
    finally:
        shared.models.script = obey
    await shared.formed([name for names in said for name in names], len(said))
    assert len(await shared.dead()) == given_up


@pytest.mark.slow
async def test_one_session_whose_answers_can_never_be_read_pauses_nothing(shared: System) -> None:
    given_up, before = len(await shared.dead()), outages()
    session = await shared.session("ulf")
    for number in range(3):
        await shared.write(session, "ulf", f"fact user: Ulf is {WORD}, {number}.")
        await shared.form(session)

        async def given() -> bool:
            return len(await shared.dead()) == given_up + number + 1  # noqa: B023

        await until(given, "the window is given up")
    assert outages() == before


@pytest.mark.slow
async def test_several_sessions_of_one_user_that_can_never_be_read_are_given_up_and_pause_nothing(
    shared: System,
) -> None:
    await shared.told(await shared.session("uma"), "uma", "fact user: Uma has a boat.")
    given_up, before = len(await shared.dead()), outages()
    sessions = [await shared.session("vic") for _ in range(3)]
    for session in sessions:
        await shared.write(session, "vic", f"fact user: Vic is {WORD}.")
        await shared.form(session)

    async def given() -> bool:
        return len(await shared.dead()) == given_up + len(sessions)

    await until(given, "the windows are given up")
    assert outages() == before


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
