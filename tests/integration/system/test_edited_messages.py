"""Messages that the application edits after memory was formed: the earlier text goes, the new one becomes memory."""

from datetime import timedelta

import pytest

from eden_memory.mongo.ids import encode_id
from eden_memory.names import Placement
from eden_memory.processors import pipeline
from eden_memory.settings import Settings
from eden_memory.windows import session_state
from tests.integration.system.canary_scans import until_erased
from tests.integration.system.commands import eden
from tests.integration.system.running_system import System, fast, stages, system, until
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers
SECRET = "fact user: Una's locker opens with Zanzibar.\nfact user: Una likes tea."
TEA, BOAT = "Una likes tea.", "Una owns a boat."


async def remembers(running: System, *facts: str) -> None:
    async def so() -> bool:
        return await running.facts("una") == sorted(facts)

    await until(so, f"just {facts} are remembered")


async def windows(running: System, because: str) -> int:
    return await running.memory("windows").count_documents({"closed.because": because})


async def reformed(running: System, name: str) -> list[str]:
    """The facts of a namespace beside live memory."""
    names = running.settings.placed(Placement(name, name)).names
    rows = await running.database[names["facts"]].find({"active": True}).to_list()
    return sorted(row["content"] for row in rows)


async def because(running: System, text: str) -> str:
    """What `why` says of the user's message with these words."""
    found = await running.service.why(text, user="una")
    return " ".join(f"{one.because} {one.steps}" for one in found if one.what == "message")


async def test_what_an_edit_takes_out_is_forgotten_everywhere_and_the_rest_is_memory_again(
    settings: Settings, shared_models: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = fast(settings, shared_models)
    async with system(settings, shared_models, run=False) as running:
        messages = running.source["messages"]
        told, other = await running.session("una"), await running.session("una")
        monkeypatch.setattr(session_state, "STILL", timedelta(hours=1))
        async with stages(settings):
            names = await running.told(told, "una", f"fact user: {BOAT}", SECRET)
            await remembers(running, "Una's locker opens with Zanzibar.", TEA, BOAT)
            before = await running.memory("windows").count_documents({})
            await messages.update_one({"_id": names[1]}, {"$set": {"seen": True}})
            whole = await messages.find_one({"_id": names[0]})
            assert whole is not None
            await messages.replace_one({"_id": names[0]}, {**whole, "seen": True})
            await messages.update_one({"_id": names[1]}, {"$set": {"content": "fact user: Una likes"}})
            await remembers(running, BOAT)
            await running.shows(other, "una", BOAT, without=["Zanzibar"])
            found = await running.service.search_facts(["What opens the locker?"], session=other, user="una")
            assert "Zanzibar" not in str(found)
            await messages.update_one({"_id": names[1]}, {"$set": {"content": f"fact user: {TEA}"}})
            await until_erased(running, b"Zanzibar")

            async def waits() -> bool:
                return "still for a minute" in await because(running, "Una likes tea")

            await until(waits, "why says that the message waits")
            assert await running.memory("windows").count_documents({}) == before

        monkeypatch.setattr(session_state, "STILL", timedelta(seconds=1))
        async with stages(settings):
            await running.form(told)  # forms nothing; the session is stored with the time that is set now
            await remembers(running, TEA, BOAT)
            await running.shows(other, "una", TEA, BOAT, without=["Zanzibar"])
            assert await windows(running, "edited") == 1
            said = await because(running, "Una likes tea")
            stored = await running.memory("messages").find_one({"_id": encode_id(names[1])})
            assert f"up to version {stored['edit']['up_to']} is forgotten; formed again in window " in said
            await eden(settings, "rebuild", "again", "--verify")  # exit code 1 if anything differs
            one_each = ("--rewindow", "--set", "windows.least=1", "--set", "windows.messages=1")
            await eden(settings, "reform", "cut", *one_each, "--yes")
            assert BOAT in await reformed(running, "cut")
            assert "Zanzibar" not in str(await reformed(running, "cut"))

        only_forgets = fast(settings, shared_models, messages={"on_edit": "forget"})
        async with stages(only_forgets):
            await messages.update_one(
                {"_id": names[1]}, {"$set": {"content": "fact user: Una likes coffee."}}
            )
            await remembers(running, BOAT)
            assert "EDEN_MESSAGES_ON_EDIT is forget" in await because(running, "Una likes coffee")
            (sails,) = await running.told(told, "una", "fact user: Una sails.")
            await remembers(running, BOAT, "Una sails.")
            assert await windows(running, "edited") == 1

        hides = fast(settings, shared_models, messages={"on_edit": "forget", "delete_grace_seconds": 60.0})
        async with stages(hides, [name for name in pipeline.NAMES if name != pipeline.FORGETTING]):
            await messages.update_one({"_id": sails}, {"$set": {"content": "fact user: Una rows."}})
            await running.shows(other, "una", BOAT, without=["Una sails."])
            await remembers(running, BOAT, "Una sails.")  # hidden before it is forgotten
