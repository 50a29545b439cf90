"""How much the offline model finds: floors a little below what it reaches, so that it cannot silently get worse."""

import json
from datetime import datetime
from pathlib import Path

import pytest

from eden_memory.demo.judgement import judged, read_expectations
from eden_memory.errors import EdenError
from eden_memory.formation.prompt_material import FactMaterial, ScopeBrief, TranscriptLine
from eden_memory.models.local_embedder import LocalEmbedder
from eden_memory.schemas.answers import ExtractedFacts
from tests.unit.formation.offline.formed_memory import answered, demo_memory

CONVERSATIONS = Path(__file__).parents[4] / "shared" / "data" / "locomo-dev.json"


async def test_the_demo_is_remembered_without_an_embedder() -> None:
    verdict = judged(read_expectations(), await (await demo_memory()).formed())
    assert verdict.recall >= 0.8
    assert verdict.precision >= 0.9
    assert verdict.clean >= 0.98
    assert {ban.id for ban, _ in verdict.violated} <= {"old-launch", "old-course"}  # replaced by dedup alone


@pytest.mark.slow
async def test_the_demo_is_remembered_and_kept_up_to_date_with_the_local_embedder() -> None:
    embedder = LocalEmbedder()
    try:
        memory = await demo_memory(embedder)
    except EdenError:
        pytest.skip("the local embedding model is not installed")
    finally:
        await embedder.close()
    verdict = judged(read_expectations(), await memory.formed())
    assert verdict.recall >= 0.8
    assert verdict.precision >= 0.92
    assert not verdict.violated


async def test_the_demo_is_remembered_the_same_each_time() -> None:
    assert await (await demo_memory()).formed() == await (await demo_memory()).formed()


@pytest.mark.skipif(not CONVERSATIONS.exists(), reason="the conversations are not here")
async def test_of_strangers_conversations_what_is_kept_bears_answers_more_often_than_the_rest() -> None:
    kept = bearing = kept_bearing = turns = 0
    for told in json.loads(CONVERSATIONS.read_text()):
        evidence = {turn for question in told["questions"] for turn in question["evidence"]}
        for session in told["sessions"]:
            time = datetime.strptime(session["date_time"], "%I:%M %p on %d %B, %Y").astimezone()
            said = [TranscriptLine(turn["speaker"], "user", time, turn["text"]) for turn in session["turns"]]
            ids = [turn["id"] for turn in session["turns"]]
            material = FactMaterial(tuple(said), (ScopeBrief("agent"), ScopeBrief("user")), 30, 30)
            facts = (await answered(material, ExtractedFacts)).facts
            chosen = {ids[number - 1] for one in facts for number in one.messages}
            turns, kept = turns + len(ids), kept + len(chosen)
            bearing, kept_bearing = bearing + len(evidence & {*ids}), kept_bearing + len(evidence & chosen)
    assert kept / turns <= 0.35
    assert (kept_bearing / kept) / (bearing / turns) >= 2.4
    assert kept_bearing / bearing >= 0.185
