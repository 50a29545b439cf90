"""`eden forget --missing`: what was deleted while nobody could see it leaves memory when a person says so."""

import pytest

from eden_memory.mongo.ids import encode_id
from eden_memory.settings import Settings
from tests.integration.system.commands import eden
from tests.integration.system.running_system import fast, stages, system, until
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers


async def test_what_a_merge_did_not_find_is_listed_and_forgotten_when_asked(
    settings: Settings, shared_models: Serving
) -> None:
    mine = fast(settings, shared_models)
    async with system(mine, shared_models, run=False) as running:
        async with stages(mine):
            session = await running.session("ivo")
            lost, back, _ = await running.told(
                session,
                "ivo",
                "fact user: Ivo owns a mill.",
                "fact user: Ivo sells flour.",
                "fact user: Ivo sings.",
            )
            assert "No message is missing" in await eden(mine, "forget", "--missing")
        source = running.source["messages"]
        row = await source.find_one({"_id": back})
        assert row is not None
        await source.delete_many({"_id": {"$in": [lost, back]}})
        await running.memory("positions").update_one(
            {"_id": mine.source_name}, {"$set": {"token": "82" + "00" * 8 + "garbage"}}
        )
        async with stages(mine):
            noted = running.memory("messages")

            async def missing(count: int) -> bool:
                return await noted.count_documents({"missing": True}) == count

            await until(lambda: missing(2), "both are noted as missing")
            await source.insert_one(row)
            await until(lambda: missing(1), "what came back is not missing any more")
            assert len(await running.facts("ivo")) == 3, "nothing is forgotten before somebody asks"
            said = await eden(mine, "forget", "--missing", "--yes", "--by", "a person")
            assert encode_id(lost) in said
            assert encode_id(back) not in said

            async def forgotten() -> bool:
                return await running.facts("ivo") == ["Ivo sells flour.", "Ivo sings."]

            await until(forgotten, "what rested on it is gone")
            assert "No message is missing" in await eden(mine, "forget", "--missing")
