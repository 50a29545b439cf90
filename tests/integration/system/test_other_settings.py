"""Settings that change what happens: deletions that are kept, another model of vectors."""

import pytest

from eden_memory.errors import EdenError
from eden_memory.mongo.ids import encode_id
from eden_memory.schemas.documents import Stream
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from tests.integration.system.commands import eden
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import AGENT, System, fast, stages, system, until
from tests.model_server.serving import Serving, serving

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


async def test_an_agent_forms_and_shows_what_its_document_says(
    settings: Settings, shared_models: Serving
) -> None:
    by_agent = fast(settings, shared_models, agents={"collection": "agents"}, memory={"reflections": "off"})
    async with system(by_agent, shared_models) as running:
        agents = running.source["agents"]
        await agents.insert_one({"_id": AGENT, "memory_facts": "off", "memory_reflections": "form"})
        session = await running.session("una")
        names = await running.write(session, "una", "fact user: Una has a boat.", "note user: Una likes tea.")
        await running.form(session)
        await running.formed(names, 1)
        assert await running.contents("reflections") == ["Una likes tea."]
        assert await running.memory("calls").count_documents({"stage": "fact-extraction"}) == 0
        assert await running.context(session, "una") == ""
        with pytest.raises(EdenError, match="facts are not shown"):
            await running.service.search_facts("boat", user="una")
        (why,) = await running.service.why("boat", user="una")
        assert (why.id, why.outcome) == (encode_id(names[0]), "nothing_proposed")
        assert why.because == "no model was asked: facts are switched off for the agent"

        await agents.update_one(
            {"_id": AGENT}, {"$set": {"memory_facts": "form", "memory_reflections": "on"}}
        )
        await running.told(session, "una", "fact user: Una has a car.")
        assert await running.facts("una") == ["Una has a car."]
        await running.shows(session, "una", "Una likes tea.", without=["Una has a car."])
        await agents.update_one({"_id": AGENT}, {"$unset": {"memory_facts": 1, "memory_reflections": 1}})
        await running.shows(session, "una", "Una has a car.", without=["Una likes tea."])
        assert [one.content for one in await running.service.search_facts("car", user="una")] == [
            "Una has a car."
        ]


@pytest.mark.slow
async def test_the_only_chat_model_of_an_endpoint_need_not_be_named(settings: Settings) -> None:
    async with serving(obey, models=("only-model", "embed-model")) as models:
        unnamed = {"fast": None, "free": None, "paid": None, "embeddings": "embed-model"}
        url_alone = fast(settings, models, models=unnamed)
        async with system(url_alone, models) as running:
            session = await running.session("ada")
            await running.told(session, "ada", "fact user: Ada has a boat.")
            assert await running.facts("ada") == ["Ada has a boat."]
            assert await running.dead() == []
            assert set(models.called) == {"only-model", "embed-model"}


@pytest.mark.slow
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


async def test_limits_are_those_of_the_settings_and_of_the_stream(
    settings: Settings, shared_models: Serving
) -> None:
    limited = fast(
        settings, shared_models, limits={"facts": 50}, memory={"context_facts": 60, "dedup": False}
    )
    agent = encode_id(AGENT)
    own = {"_id": f"{agent}/user", "agent_id": agent, "scope": "user", "threshold": 2, "max_items": 2}
    stream = Stream.model_validate({**own, "item_word_limit": 3})
    async with system(limited, shared_models, run=False) as running:
        await running.memory("streams").insert_one(stream.stored())
        async with stages(limited):
            await _formed_within_limits(running)


async def _formed_within_limits(running: System) -> None:
    session = await running.session("yan")
    await running.told(session, "yan", "note user: Yan likes tea.", "note user: Yan likes oats.")
    key = Scope.of_user(encode_id(AGENT), encode_id("yan")).key

    async def consolidated() -> bool:
        return (await running.snapshot(key)).get("blob_version") == 1

    await until(consolidated, "two reflections are enough to consolidate")
    texts = [f"fact user: Yan owns lot{number} somewhere in the hills." for number in range(45)]
    await running.told(session, "yan", *texts)
    await running.shows(session, "yan", *(f"Yan owns lot{number}" for number in range(45)))
    assert "hills" not in await running.context(session, "yan")
