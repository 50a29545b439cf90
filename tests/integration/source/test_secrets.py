"""Secrets of messages and of the inbox never reach Kafka or dead letters; the application's documents keep them."""

from typing import Any

import pytest

from eden_memory.source.inbox_store import ask
from tests.integration.source.harness import Kit, until

pytestmark = pytest.mark.servers
KEY = "AKIA" + "IOSFODNN7EXAMPLE"  # in parts, so that no scanner takes it for a real one
MANY = 6


async def test_no_secret_reaches_kafka(chat: Kit) -> None:
    await chat.insert(1, content=f"my key is {KEY}")
    async with chat.topic() as topic, chat.tailing():
        await chat.following()
        await chat.insert(2, content=f"again {KEY}")
        await chat.insert(3, content=f"lost {KEY}", session_id=None)
        await ask(chat.inbox, {"kind": "added_text", "session_id": "s1", "text": f"added {KEY}"})
        await topic.until(lambda: len(topic.records) >= 3, "all are recorded")
        (letter,) = await chat.letters(1)
        everything = [*(one.value or b"" for one in topic.records), str(letter).encode()]
    assert sum(b"[redacted: aws]" in value for value in everything) == 3
    assert not any(KEY.encode() in value for value in everything)
    assert await chat.messages.count_documents({"content": {"$regex": KEY}}) == 3


async def test_switched_on_later_it_records_only_messages_with_secrets_again(chat: Kit) -> None:
    for number in range(MANY):
        await chat.insert(number, content=f"text {number} {KEY if number == 4 else ''}")
    off = chat.settings.messages.model_copy(update={"redact_secrets": False})
    async with chat.topic() as topic:
        async with chat.tailing(chat.settings.model_copy(update={"messages": off})):
            await topic.until(lambda: len(topic.records) >= MANY, "all are recorded")
        async with chat.tailing():
            request = await ask(chat.inbox, {"kind": "reread", "asked_by": "test"})
            await until(lambda: _gone(chat, request), "all are read again")
            await topic.until_marked()
    (again,) = topic.records[MANY:]
    assert (again.key, again.message.text) == ("i.4", "text 4 [redacted: aws]")


async def _gone(chat: Kit, request: Any) -> bool:
    return await chat.inbox.find_one({"_id": request}) is None
