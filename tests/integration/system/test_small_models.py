"""A small local model with the short prompts: from chat writes to memory, whatever form its server takes."""

import re

import pytest

from eden_memory.settings import Settings
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import fast, system
from tests.model_server.script import Asked, Said
from tests.model_server.serving import serving

pytestmark = pytest.mark.servers


def small(asked: Asked) -> Said:
    """Repeats its facts without an end."""
    answer = obey(asked)
    if asked.kind not in ("facts", "reflections") or not isinstance(answer, dict):
        return answer
    assert re.search(r"^List ", asked.system), "the short prompts are used"
    if asked.kind == "facts":
        return {"facts": answer["facts"] * 500}
    return answer


async def test_a_model_that_repeats_itself_without_an_end_gives_each_fact_once(settings: Settings) -> None:
    async with serving(small, supports="text") as models:
        placed = fast(settings, models, models={"prompts": "short"})
        async with system(placed, models) as running:
            session = await running.session("ana")
            await running.told(
                session,
                "ana",
                "fact user: Ana lives in Porto.",
                "fact user: Anas Katze heißt Mia.",
                "note user: Likes maps.",
            )
            await running.shows(session, "ana", "Ana lives in Porto.", "Anas Katze heißt Mia.", "Likes maps.")
            assert await running.facts("ana") == ["Ana lives in Porto.", "Anas Katze heißt Mia."]
            assert await running.dead() == []
            asked = {row["prompt"] async for row in running.memory("answers").find({"prompt": {"$ne": None}})}
    assert {"fact-extraction-short/4", "reflection-extraction-short/3"} <= asked
