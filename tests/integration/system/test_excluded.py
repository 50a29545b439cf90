"""Chats and messages that the application excludes: nothing of them reaches Kafka, however they are read."""

import pytest

from eden_memory.mongo.ids import encode_id
from eden_memory.settings import Settings
from eden_memory.source.inbox_store import ask
from tests.awaiting import gives
from tests.integration.system.running_system import fast, stages, system, until
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers
EXCLUDING = {"sessions": {"exclude": ("isTemporary",)}, "messages": {"exclude": ("t=uj",)}}
UJ = {"_id": "joined", "role": "user", "user_id": "ada", "content": "fact user: Ada joined.", "t": "uj"}


async def test_what_is_excluded_stays_out_of_kafka_memory_and_contexts(
    settings: Settings, shared_models: Serving
) -> None:
    excluding = fast(settings, shared_models, **EXCLUDING)
    async with system(excluding, shared_models, run=False) as running:
        hidden = await running.session("ada", isTemporary=True)
        kept, other = await running.session("ada", isTemporary=False), await running.session("ada")
        await running.write(hidden, "ada", "fact user: Ada hides a first secret.")  # read by the backfill
        async with stages(excluding):
            await running.told(kept, "ada", "fact user: Ada owns a boat.")
            await running.write(hidden, "ada", "fact user: Ada hides a second secret.")  # by the stream
            await running.source["messages"].insert_one({**UJ, "session_id": kept})
            await running.memory("inbox").insert_one(
                {
                    "kind": "added_text",
                    "session_id": hidden,
                    "user_id": "ada",
                    "text": "Ada hides a third secret.",
                }
            )
            await running.form(hidden)
            await running.source["messages"].update_one(
                {"_id": "joined"}, {"$set": {"content": "Joined again."}}
            )
            await ask(running.memory("inbox"), {"kind": "reread", "asked_by": "test"})
            await running.told(kept, "ada", "fact user: Ada sails to Porto.")
            await until(
                lambda: gives(running.memory("inbox").count_documents({}), 0), "all requests are carried out"
            )
            await running.shows(
                other, "ada", "Ada owns a boat.", "sails to Porto", without=["secret", "joined"]
            )
            values = [one.value for one in await running.records("chat.messages") if one.value is not None]
            assert not [one for one in values if b"secret" in one or b"oined" in one]
            assert await running.facts("ada") == ["Ada owns a boat.", "Ada sails to Porto."]


async def test_a_message_that_was_read_before_it_is_excluded_is_forgotten_when_it_is_read_again(
    settings: Settings, shared_models: Serving
) -> None:
    before, excluding = fast(settings, shared_models), fast(settings, shared_models, **EXCLUDING)
    async with system(before, shared_models, run=False) as running:
        session = await running.session("ada")
        async with stages(before):
            await running.source["messages"].insert_one({**UJ, "session_id": session})
            await running.form(session)
            await running.formed(["joined"], 1)
        async with stages(excluding):
            await ask(running.memory("inbox"), {"kind": "reread", "asked_by": "test"})
            await until(lambda: gives(running.facts("ada"), []), "what it said is forgotten")
            await until(lambda: gives(_text(running.memory("messages")), None), "its text is erased")


async def _text(messages: object) -> object:
    row = await messages.find_one({"_id": encode_id("joined")})  # pyright: ignore
    return row["text"]  # pyright: ignore
