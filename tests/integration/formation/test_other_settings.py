"""Settings that change what happens: deletions that are kept, another model of vectors."""

import pytest

from eden_memory.mongo.ids import encode_id
from eden_memory.settings import Settings
from tests.integration.formation.commands import eden
from tests.integration.formation.running_system import fast, stages, system, until
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers


async def test_a_deleted_message_is_remembered_where_deletions_are_kept(
    settings: Settings, shared_models: Serving
) -> None:
    keeping = fast(settings, shared_models, messages={"on_delete": "keep"})
    async with system(keeping, shared_models) as running:
        session = await running.session("vic")
        (name,) = await running.told(session, "vic", "fact user: Vic owns a mill.")
        await running.source["messages"].delete_one({"_id": name})

        async def noted() -> bool:
            row = await running.memory("messages").find_one({"_id": encode_id(name)})
            return row is not None and row["deleted"]

        await until(noted, "the deletion is noted")
        assert await running.facts("vic") == ["Vic owns a mill."]
        assert await running.records("memory.forgotten") == []


async def test_facts_get_vectors_of_another_model_and_are_found_by_them(
    settings: Settings, shared_models: Serving
) -> None:
    first = fast(settings, shared_models)
    other = fast(settings, shared_models, models={"embeddings": "other-model"})
    async with system(first, shared_models, run=False) as running:
        async with stages(first):
            session = await running.session("wes")
            await running.told(
                session, "wes", "fact user: Wes digs wells.", "fact user: Wes met Ida in Rome."
            )
        assert "asked for 2 of 2 facts" in await eden(other, "reembed", "--no-wait")
        async with stages(other):
            await eden(other, "reembed", "--wait")
            rows = await running.memory("facts").find().to_list()
            assert {(row["embedding_model"], row["version"], row["decision"]) for row in rows} == {
                ("other-model", 2, rows[0]["decision"])
            }
            assert await running.facts("wes") == ["Wes digs wells.", "Wes met Ida in Rome."]
            again = await eden(other, "reembed")
            assert "every active fact has a vector of other-model" in again.replace("\n", " ")
