"""Documents that list their messages form memory as any others: shown, formed, edited, trimmed, forgotten."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eden_memory.schemas.documents import Message, MessageLists
from eden_memory.settings import MessagesSettings, Settings
from eden_memory.windows import session_state
from tests.integration.system.running_system import System, fast, system, until
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers
PATHS = {
    "list": "log",
    "session_id": "_id",
    "user_id": "user",
    "role": "log.role",
    "content": "log.content",
    "created_at": "log.ts",
    "delete_grace_seconds": 0.5,
}


def says(content: str) -> dict[str, Any]:
    return {"$push": {"log": {"role": "user", "content": content}}}


async def named(at: System, content: str) -> str:
    """The id of the message that a fact rests on, as the application would have it."""
    row = await at.memory("facts").find_one({"content": {"$regex": content}})
    return row["message_ids"][0].removeprefix("s.").replace("%2F", "/")


async def test_what_lists_say_is_shown_formed_and_forgotten(
    settings: Settings, shared_models: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_state, "STILL", timedelta(seconds=1))
    # the authors of messages are a session's users
    mapped = fast(
        settings, shared_models, messages=PATHS, sessions={"users": "-"}, users={"collection": None}
    )
    async with system(mapped, shared_models) as at:
        chats = at.source["messages"]
        for session in ("told", "asks"):
            await at.session(id=session)
            await chats.insert_one({"_id": session, "user": "ana", "log": []})
        told = {"_id": "told"}
        await chats.update_one({"_id": "asks"}, says("Hello"))
        await chats.update_one(told, says("fact user: The boat is called Gaivota."))
        await at.shows("asks", "ana", "[user]", "Gaivota")

        async def facts(*contents: str) -> None:
            async def so() -> bool:
                found = await at.facts("ana")
                return len(found) == len(contents) and all(
                    content in fact for content, fact in zip(sorted(contents), found, strict=True)
                )

            await until(so, f"{contents}")

        await at.form("told")
        await facts("Gaivota")
        await at.shows("asks", "ana", "Gaivota", without=["<Recent>"])
        first = await named(at, "Gaivota")
        assert first.startswith("s.told/0.")

        await chats.update_one(told, {"$set": {"log.0.content": "fact user: The boat is called Pardal."}})
        await facts()
        await at.form("told")
        await facts("Pardal")
        assert await named(at, "Pardal") == first

        await chats.update_one(told, says("fact user: The dog is called Skot."))
        await at.form("told")
        await facts("Pardal", "Skot")
        await chats.update_one(told, {"$pop": {"log": -1}})
        await facts("Skot")

        await chats.update_one({"_id": "asks"}, says("Is bob here?"))
        await chats.update_one({"_id": "asks"}, {"$set": {"user": "bob"}})
        await at.shows("asks", "ana", without=["Skot"])

        await at.forget("message", await named(at, "Skot"))
        await facts()
        row = await at.memory(MessageLists.COLLECTION).find_one({"_id": "s.told"})
        assert row is not None
        assert row["marks"][:8] == bytes(8), "nothing of what it said is kept"
        await chats.update_one(told, says("fact user: The cat is called Mia."))
        await at.form("told")
        await facts("Mia")


async def test_a_question_and_its_answer_in_one_document_are_two_messages(
    settings: Settings, shared_models: Serving
) -> None:
    paths = MessagesSettings(
        list="question+answer",
        session_id="session",
        user_id="user",
        created_at="at",
        roles={"question": "user", "answer": "assistant"},
        delete_grace_seconds=0.5,
    )
    mapped = fast(settings, shared_models, sessions={"users": "-"}, users={"collection": None})
    mapped = mapped.model_copy(update={"messages": paths})
    async with system(mapped, shared_models) as at:
        chats = at.source["messages"]
        for session in ("told", "asks"):
            await at.session(id=session)
        asked = {"session": "told", "user": "ana", "at": datetime.now(UTC)}
        first = (await chats.insert_one({**asked, "question": "fact user: The boat is Gaivota."})).inserted_id
        await chats.insert_one({**asked, "session": "asks", "question": "Hello"})
        await at.shows("asks", "ana", "[user]", "Gaivota")
        await chats.update_one({"_id": first}, {"$set": {"answer": "A fine name."}})

        async def roles() -> bool:
            rows = await at.memory(Message.COLLECTION).find({"session_id": "s.told"}).to_list()
            return sorted(row["role"] for row in rows) == ["assistant", "user"]

        await until(roles, "the answer is a message, too")
        await at.form("told")

        async def facts(*contents: str) -> bool:
            found = await at.facts("ana")
            return len(found) == len(contents) and all(map(str.__contains__, found, contents))

        await until(lambda: facts("Gaivota"), "the question forms")
        await chats.update_one({"_id": first}, {"$set": {"question": "fact user: The boat is Pardal."}})
        await until(facts, "what an edit takes out is forgotten")
        await at.form("told")
        await until(lambda: facts("Pardal"), "the new question forms")
        await chats.delete_one({"_id": first})
        await until(facts, "with the document both messages go")
