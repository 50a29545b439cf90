"""A turn that was stored once and deleted since stays away, though the client's history still has it."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from bson import ObjectId

from eden_memory.mongo.bson_ids import encode_id
from eden_memory.settings import Settings
from tests.awaiting import until
from tests.integration.gateway.gateway_kit import Chats, behind, chats_of, running, says
from tests.integration.system.running_system import prepare, stages
from tests.model_server.chat_upstream import ChatUpstream

pytestmark = pytest.mark.servers
QUESTION, ANSWER, NEXT, LAST = "I live in Porto.", "Noted, Porto.", "Is it far?", "No."
OTHER: dict[str, Any] = {"session_id": "other", "role": "user", "user_id": "bo", "content": "Good morning."}


@asynccontextmanager
async def chatting(settings: Settings, provider: ChatUpstream, **gateway: Any) -> AsyncGenerator[Chats]:
    here = behind(running(settings, provider.openai_url), provider.openai_url, **gateway)
    await prepare(here)
    async with stages(here), chats_of(here, provider) as chats:
        yield chats


async def say(chats: Chats, answer: str, *texts: str) -> None:
    chats.upstream.reply = says(answer)
    await chats.say(*texts, memory_id="c1", user="ada")
    await chats.gateway.keeping.idle()


async def known(chats: Chats, *texts: str) -> Sequence[str]:
    """Wait until memory knows the session's messages, and return the ids of these texts."""
    rows = {row["content"]: encode_id(row["_id"]) for row in await chats.rows("c1")}
    recorded = chats.kit.database[chats.settings.names["messages"]]

    async def all_recorded() -> bool:
        return await recorded.count_documents({"_id": {"$in": list(rows.values())}}) == len(rows)

    await until(all_recorded, "memory knows the messages")
    return [rows[text] for text in texts]


async def delete(chats: Chats, *texts: str, seen: bool = True) -> None:
    """Delete messages as the application does, and (`seen`) wait until memory knows that."""
    names = await known(chats, *texts)
    await chats.kit.database["messages"].delete_many({"session_id": "c1", "content": {"$in": list(texts)}})
    recorded = chats.kit.database[chats.settings.names["messages"]]

    async def all_deleted() -> bool:
        return await recorded.count_documents({"_id": {"$in": list(names)}, "deleted": True}) == len(names)

    if seen:
        await until(all_deleted, "memory knows of the deletion")


@pytest.mark.parametrize("ids", [None, ObjectId])
@pytest.mark.parametrize("seen", [True, False])
async def test_a_deleted_answer_of_the_history_is_not_stored_again(
    settings: Settings, provider: ChatUpstream, ids: Any, seen: bool
) -> None:
    async with chatting(settings, provider) as chats:
        if ids is not None:
            await chats.kit.database["messages"].insert_one({"_id": ids(), **OTHER})
        await say(chats, ANSWER, QUESTION)
        await delete(chats, ANSWER, seen=seen)
        await say(chats, LAST, QUESTION, ANSWER, NEXT)
        await say(chats, "A mile.", QUESTION, ANSWER, NEXT, LAST, "How far?")
        assert [text for _, text in await chats.stored("c1")] == [QUESTION, NEXT, LAST, "How far?", "A mile."]


async def test_a_deleted_question_that_is_sent_again_is_not_stored_again(
    settings: Settings, provider: ChatUpstream
) -> None:
    async with chatting(settings, provider) as chats:
        await say(chats, ANSWER, QUESTION)
        await delete(chats, QUESTION)
        await say(chats, ANSWER, QUESTION)
        assert [text for _, text in await chats.stored("c1")] == [ANSWER]


async def test_what_is_said_again_after_it_was_deleted_is_a_turn_of_its_own(
    settings: Settings, provider: ChatUpstream
) -> None:
    """The user clears the conversation, and begins as before; the provider answers as before."""
    async with chatting(settings, provider) as chats:
        await say(chats, ANSWER, QUESTION)
        await say(chats, LAST, QUESTION, ANSWER, NEXT)
        await delete(chats, QUESTION, ANSWER, NEXT, LAST)
        for _ in range(2):  # and once more, by a retry
            await say(chats, ANSWER, QUESTION)
        assert [text for _, text in await chats.stored("c1")] == [QUESTION, ANSWER]


async def test_a_turn_that_went_through_the_inbox_and_was_forgotten_stays_away(
    settings: Settings, provider: ChatUpstream
) -> None:
    async with chatting(settings, provider, turns="inbox") as chats:
        recorded = chats.kit.database[chats.settings.names["messages"]]
        await say(chats, ANSWER, QUESTION)

        async def both() -> bool:
            return await recorded.count_documents({"session_id": "s.c1"}) == 2

        await until(both, "memory knows both turns")
        answer = await recorded.find_one({"role": "assistant"})
        assert answer is not None
        asked = {"kind": "forget", "what": "message", "target": answer["_id"].removeprefix("s.")}
        await chats.kit.database["memory_inbox"].insert_one(asked)
        forgotten = {"_id": answer["_id"], "forgotten": True, "text": None}
        await until(lambda: found(recorded, forgotten), "the answer is forgotten")
        await say(chats, LAST, QUESTION, ANSWER, NEXT)
        await say(chats, "A mile.", QUESTION, "Noted, Porto!", NEXT, LAST, "How far?")

        async def later() -> bool:
            return await recorded.count_documents({"session_id": "s.c1", "text": "A mile."}) == 1

        await until(later, "memory knows the newest answer")
        texts = {row["text"] async for row in recorded.find({"session_id": "s.c1"})}
        assert texts == {QUESTION, None, NEXT, LAST, "How far?", "A mile."}
        assert await chats.kit.database["memory_inbox"].count_documents({"text": ANSWER}) == 0


async def found(collection: Any, query: dict[str, Any]) -> bool:
    return await collection.find_one(query) is not None
