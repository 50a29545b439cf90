"""A turn that was stored once and deleted since stays away, though the client's history still has it."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from eden_memory.mongo.ids import decode_id, encode_id
from eden_memory.settings import Settings
from eden_memory.source.messages_store import inbox_name
from tests.awaiting import until
from tests.integration.gateway.gateway_kit import Chats, behind, chats_of, running, says
from tests.integration.system.running_system import prepare, stages
from tests.model_server.chat_upstream import ChatUpstream

pytestmark = pytest.mark.servers
QUESTION, ANSWER, NEXT, LAST = "I live in Porto.", "Noted, Porto.", "Is it far?", "No."
LATER = datetime(2126, 1, 1, tzinfo=UTC)


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
    """Wait until memory knows the session's messages, and return the ids of these texts, typed."""
    recorded = chats.kit.database[chats.settings.names["messages"]]
    inbox = chats.kit.database[inbox_name(chats.settings)]

    async def all_recorded() -> bool:
        return await inbox.count_documents({"kind": "added_text"}) == 0 and await recorded.count_documents(
            {"text": {"$in": list(texts)}}
        ) == len(texts)

    await until(all_recorded, "memory knows the messages")
    rows = {row["text"]: row["_id"] async for row in recorded.find({"text": {"$in": list(texts)}})}
    return [rows[text] for text in texts]


async def delete(chats: Chats, *texts: str, seen: bool = True) -> None:
    """Have messages forgotten, and (`seen`) wait until memory knows that."""
    names = await known(chats, *texts)
    service = chats.memory.agent()
    for name in names:
        await service.forget("message", decode_id(name))
    recorded = chats.kit.database[chats.settings.names["messages"]]

    async def all_forgotten() -> bool:
        return await recorded.count_documents({"_id": {"$in": list(names)}, "forgotten": True}) == len(names)

    if seen:
        await until(all_forgotten, "memory knows of the deletion")


@pytest.mark.parametrize("seen", [True, pytest.param(False, marks=pytest.mark.slow)])
async def test_a_deleted_answer_of_the_history_is_not_stored_again(
    settings: Settings, provider: ChatUpstream, seen: bool
) -> None:
    async with chatting(settings, provider) as chats:
        await say(chats, ANSWER, QUESTION)
        await delete(chats, ANSWER, seen=seen)
        await say(chats, LAST, QUESTION, ANSWER, NEXT)
        await say(chats, "A mile.", QUESTION, ANSWER, NEXT, LAST, "How far?")
        await until(
            lambda: stands(chats, QUESTION, NEXT, LAST, "How far?", "A mile."), "the answer stays away"
        )


@pytest.mark.parametrize("what", ["message", "session", "user"])
async def test_an_answer_that_is_forgotten_before_it_is_recorded_is_not_stored_again(
    settings: Settings, provider: ChatUpstream, what: Any
) -> None:
    """The tailer carries the answer, and memory is asked to forget it, while formation-trigger is behind."""
    here = behind(settings, provider.openai_url)
    await prepare(here)
    async with chats_of(here, provider) as chats:
        await say(chats, ANSWER, QUESTION)
        inbox = chats.kit.database[inbox_name(here)]
        answer = await inbox.find_one_and_delete({"text": ANSWER})
        assert answer is not None
        await say(chats, LAST, QUESTION, ANSWER, NEXT)
        assert ANSWER not in [text for _, text in await chats.stored("c1")], "this process has written it"
        await inbox.delete_many({"text": {"$ne": QUESTION}})
        chats.as_restarted()
        await say(chats, LAST, QUESTION, ANSWER, NEXT)
        assert ANSWER in [text for _, text in await chats.stored("c1")], "another takes it for lost"
        await inbox.delete_many({"text": {"$ne": QUESTION}})
        chats.as_restarted()
        of_message = {"reach": "for_ever", "target": encode_id(answer["_id"])}
        since = {
            "reach": "up_to_time",
            "target": {"session": "s.c1", "user": "s.ada"}.get(what),
            "until": LATER,
        }
        mark = {"_id": what, "kind": what, **(of_message if what == "message" else since)}
        await chats.kit.database[here.names["forgotten"]].insert_one(mark, bypass_document_validation=True)
        await say(chats, LAST, QUESTION, ANSWER, NEXT)
        assert ANSWER not in [text for _, text in await chats.stored("c1")]


async def test_a_deleted_question_that_is_sent_again_is_not_stored_again(
    settings: Settings, provider: ChatUpstream
) -> None:
    async with chatting(settings, provider) as chats:
        await say(chats, ANSWER, QUESTION)
        await delete(chats, QUESTION)
        await say(chats, ANSWER, QUESTION)
        await until(lambda: stands(chats, ANSWER), "the question stays away")


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
        await until(lambda: stands(chats, QUESTION, ANSWER), "both are said again, once")


async def stands(chats: Chats, *texts: str) -> bool:
    return [text for _, text in await chats.stored("c1")] == list(texts)
