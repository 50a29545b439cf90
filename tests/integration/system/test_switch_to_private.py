"""A store that was a team's becomes private: what rests on users is hidden at every door, listed and retired."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from eden_memory.memory.memory_index_store import settle_sharing
from eden_memory.mongo.ids import encode_id
from eden_memory.settings import Settings
from tests.integration.system.commands import eden
from tests.integration.system.every_door import Asker, EveryDoor, every_door
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import AGENT, System, fast, system, until
from tests.model_server.script import Asked, default_script
from tests.model_server.serving import serving

pytestmark = pytest.mark.servers
FACT, NOTE, ABSORBED = (
    "The office keeps larkspur in the vault.",
    "The team worries about larkspur.",
    "The team talks of larkspur.",
)
SECRET = "arkspur"
PLAIN = "The depot is in Braga."
QUESTIONS = ("Where is larkspur?", "Where is the depot?", "What did I say about larkspur?")


def keep(asked: Asked) -> Any:
    """As messages ask; a consolidated text keeps what it is made from."""
    return default_script(asked) if asked.kind == "consolidation" else obey(asked)


async def test_a_switch_hides_what_users_said_at_once_and_a_command_retires_it(settings: Settings) -> None:
    async with serving(keep) as models:
        placed = fast(settings, models, memory={"sharing": "team", "without_users": True})
        async with system(placed, models) as running, every_door(running) as doors:
            await running.memory("streams").insert_one(
                {"_id": f"s.{AGENT}/agent", "agent_id": f"s.{AGENT}", "scope": "agent", "threshold": 2}
            )
            bobs = await running.session("bob")
            await learned(running)
            asker = Asker(bobs, "bob")
            await running.told(bobs, "bob", "note session: Bob says hello.")
            assert await leaks(doors, asker) > {
                "python search",
                "python blobs",
                "http facts?active=all&",
                "gateway",
            }

            async def ready(*, shown: bool) -> bool:
                xml = await doors.ready(asker)
                return "Bob says hello" in xml and (SECRET in xml) == shown and PLAIN in xml

            await until(lambda: ready(shown=True), "the ready context shows it")

            await settle_sharing(running.database, running.settings.names, "private")
            await until(
                lambda: silent(doors, asker), "what was told is hidden as soon as the switch is heard of"
            )
            for angle in (asker, Asker(), Asker(None, "bob"), Asker(None, "dora")):
                assert await leaks(doors, angle) == set()
                assert PLAIN in str(await running.service.search_facts(QUESTIONS[1], **angle.named))
            assert {
                name for name, said in (await doors.slow(asker, QUESTIONS)).items() if SECRET in said
            } == set()
            assert PLAIN in await running.context(bobs, "bob")
            await until(lambda: ready(shown=False), "the ready context follows")

            listed = json.loads(await eden(running.settings, "sharing", "list", "--hidden", "--json"))
            assert {one["kind"] for one in listed} == {"fact", "reflection", "blob"}
            assert all(SECRET in one["content"] for one in listed)
            assert "Asked for 1 facts" in await eden(running.settings, "sharing", "retire", "--yes")

            async def retired() -> bool:
                return await eden(running.settings, "sharing", "list", "--hidden", "--json") == "[]\n"

            await until(retired, "nothing is left to hide")
            row = await running.memory("facts").find_one({"content": FACT})
            assert (row["retired_because"], row["command"]["by"]) == ("asked", "person")
            assert await running.contents("reflections", content={"$regex": SECRET}) == []
            assert await leaks(doors, asker) == set()
            assert PLAIN in await running.context(bobs, "bob")


async def learned(running: System) -> None:
    """A fact, a reflection and a blob of the agent that rest on what dora said, and a fact that does not."""
    doras = await running.session("dora")
    await running.told(
        doras,
        "dora",
        f"fact agent: {FACT}",
        f"note agent: {ABSORBED}",
        "note agent: The team talks of larkspur again.",
    )

    async def consolidated() -> bool:
        return await running.memory("consolidated").count_documents({"scope": "agent"}) == 1

    await until(consolidated, "the agent's reflections are consolidated")
    await running.told(doras, "dora", f"note agent: {NOTE}")
    depots = await running.session()
    said = {"session_id": depots, "role": "assistant", "content": f"fact agent: {PLAIN}"}
    await running.source["messages"].insert_one({**said, "created_at": datetime.now(UTC)})
    await running.form(depots)

    async def stored() -> bool:
        return await running.memory("facts").count_documents({"session_ids": encode_id(depots)}) == 1

    await until(stored, "the agent's own fact is stored")


async def leaks(doors: EveryDoor, asker: Asker) -> set[str]:
    """The doors that say it to this asker."""
    return {name for name, said in (await doors.quick(asker, QUESTIONS)).items() if SECRET in said}


async def silent(doors: EveryDoor, asker: Asker) -> bool:
    """Whether no door says it."""
    return not await leaks(doors, asker)
