"""Both extractions on the runtime, with MongoDB and Kafka: one answer each, whatever is repeated or killed."""

import asyncio
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from eden_memory.errors import PermanentError
from eden_memory.formation.prompt_material import FactMaterial, ReflectionMaterial
from eden_memory.models.question import Prompt
from eden_memory.schemas.answers import ExtractedFacts, ModelAnswer, StatedReflections
from eden_memory.schemas.documents import Snapshot
from eden_memory.schemas.events import FactsExtracted, FactsProposed, ReflectionFormed, SessionClosed
from tests.integration.formation.extraction.extraction_kit import Kit, window
from tests.integration.stages_on_servers import Topic
from tests.servers import TestServers
from tests.unit.formation.extraction.windows import NOON, USER_SCOPE, ScriptedModel, fact, reflection

pytestmark = pytest.mark.servers
MODULE = "tests.integration.formation.extraction.extraction_process"
ANSWERS = 20


def answer(prompt: Prompt) -> ModelAnswer:
    """A fact of the first message, and one reflection for the session."""
    if isinstance(prompt.material, FactMaterial):
        return ExtractedFacts(facts=[fact(f"Fact: {prompt.material.lines[0].text}", "user", 1)])
    return StatedReflections(reflections=[reflection("They talked.", "session", 1)])


async def test_a_closed_window_becomes_facts_and_reflections_and_an_ended_session_is_closed(kit: Kit) -> None:
    model = ScriptedModel(answer)
    shot = Snapshot(
        _id=USER_SCOPE.key,
        scope="user",
        scope_key=USER_SCOPE.key,
        agent_id=USER_SCOPE.agent_id,
        user_id=USER_SCOPE.user_id,
        revision=1,
        blob="Likes short lists.",
        blob_version=1,
        changed_at=NOON,
    )
    await kit.database["memory_snapshots"].insert_one(shot.stored())
    await kit.database["memory_streams"].insert_one(
        {
            "_id": "s.juniper/user",
            "agent_id": "s.juniper",
            "scope": "user",
            "extraction_guidance": "Only boats.",
        }
    )
    async with kit.published() as out, kit.running(model):
        await kit.close_windows([window(1, "Tern is blue.", because="ended"), window(2, because="ended")])
        await out.until_true(lambda: len(out.of(SessionClosed)) == 2, "both sessions closed")
        extracted = {one.key(): one.outcome for one in out.of(FactsExtracted)}
        assert extracted == {"s.talk1/1-aa": "extracted", "s.talk2/1-aa": "empty"}
        (proposed,) = out.of(FactsProposed)
        assert [one.text for one in proposed.facts] == ["Fact: Tern is blue."]
        (formed,) = out.of(ReflectionFormed)
        assert formed.scope.key == "session:s.talk"
        assert {one.formation_id: one.reflections for one in out.of(SessionClosed)} == {
            "s.talk1/1-aa": 1,
            "s.talk2/1-aa": 0,
        }
    about_reflections = next(one for one in model.prompts if isinstance(one.material, ReflectionMaterial))
    assert "  Likes short lists." in about_reflections.user
    assert "- Fact: Tern is blue." in about_reflections.user
    assert "Only boats." in about_reflections.system
    assert len(model.prompts) == 2, "the empty window asked nothing"


async def test_redelivered_windows_cost_no_second_call_and_publish_the_same(kit: Kit) -> None:
    windows = [window(number, f"Boat {number} is blue.") for number in range(12)]
    async with kit.published() as out:
        first = ScriptedModel(answer)
        async with kit.running(first):
            await kit.close_windows(windows)
            await out.until_true(lambda: len(out.of(ReflectionFormed)) == 12, "all reflections")
        again = ScriptedModel(answer)
        async with kit.running(again):
            await kit.ask_for(windows)
            repeats = len(out.records) + 12 * 2
            await out.until_true(lambda: len(out.records) >= repeats, "the repeats")
        assert (len(first.prompts), len(again.prompts)) == (24, 0)
        assert all(len(values) == 1 for values in out.values().values()), "a repeat is the same record"


async def test_a_dead_extraction_is_said_to_have_failed_and_reflections_are_formed_all_the_same(
    kit: Kit,
) -> None:
    def refuse_facts(prompt: Prompt) -> ModelAnswer:
        if isinstance(prompt.material, FactMaterial):
            raise PermanentError("the answer and all repairs of it were invalid")
        return answer(prompt)

    async with kit.published() as out, kit.running(ScriptedModel(refuse_facts)):
        await kit.close_windows([window(1, "Tern is blue.", because="ended")])
        await out.until_true(lambda: bool(out.of(SessionClosed)), "the session closed")
        (extracted,) = out.of(FactsExtracted)
        assert (extracted.outcome, extracted.facts) == ("failed", ())
        assert "invalid" in (extracted.reason or "")
        assert [one.text for one in out.of(ReflectionFormed)] == ["They talked."]
        assert len(await kit.letters(1)) == 1


async def test_a_window_whose_texts_are_gone_is_given_up_and_its_session_still_closed(kit: Kit) -> None:
    async with kit.published() as out, kit.running(ScriptedModel(answer)):
        await kit.close_windows([window(1, "Tern is blue.", because="ended")], keep_texts=False)
        await out.until_true(lambda: bool(out.of(SessionClosed)), "the session closed")
        assert [one.outcome for one in out.of(FactsExtracted)] == ["failed"]
        assert out.of(ReflectionFormed) == []


async def test_killed_processes_leave_one_outcome_for_each_window(
    servers: TestServers, kit: Kit, tmp_path: Path
) -> None:
    windows = [window(number, f"Boat {number} is blue.") for number in range(40)]
    calls = tmp_path / "calls"
    await kit.close_windows(windows)
    async with kit.published() as out:
        for answered in (ANSWERS, 2 * ANSWERS):
            await _killed_once(servers, kit, calls, out, answered)
        process = _start(servers, kit, calls)
        try:
            await out.until_true(lambda: _formed(out) == 40, "all reflections")
        finally:
            await _kill(process)
        await out.read()
        assert len(out.of(FactsExtracted)) == len(out.of(FactsProposed)) == 40
        assert all(len(values) == 1 for values in out.values().values()), "no second outcome"
        times = Counter(calls.read_text().splitlines())
        assert max(times.values()) <= 3, "only what was in flight at a kill is asked again"
        assert sum(times.values()) >= 80


def _formed(out: Topic) -> int:
    return len({one.formation_id for one in out.of(ReflectionFormed)})


def _start(servers: TestServers, kit: Kit, calls: Path, *ends: int) -> subprocess.Popen[bytes]:
    kafka = kit.settings.kafka
    names = [kit.settings.mongodb.database, kafka.topic_prefix, kafka.group_prefix]
    arguments = [servers.mongodb_uri, servers.kafka_bootstrap, *names, str(calls), *map(str, ends)]
    with calls.with_suffix(".log").open("ab") as log:
        return subprocess.Popen([sys.executable, "-m", MODULE, *arguments], stdout=log, stderr=log)


async def _killed_once(servers: TestServers, kit: Kit, calls: Path, out: Topic, answered: int) -> None:
    """A process that has some of its questions answered, acts on that, and is killed with the others under way."""
    process = _start(servers, kit, calls, ANSWERS)
    try:
        await out.until_true(lambda: _acted_on(out) >= answered, f"what followed from {answered} answers")
    finally:
        await _kill(process)
    await out.read()
    assert _acted_on(out) == answered


def _acted_on(out: Topic) -> int:
    return len(out.of(FactsExtracted)) + _formed(out)


async def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    await asyncio.to_thread(process.wait)
