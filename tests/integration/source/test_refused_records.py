"""Records that the broker will never take: dead letters, cut until they fit, and the tailer goes on."""

import os
from typing import Any

import pytest

from eden_memory.kafka.outgoing import DEAD_HEADERS
from tests.integration.kafka_limits import limit
from tests.integration.source.harness import Kit, until

pytestmark = pytest.mark.servers


def said(letter: Any) -> dict[str, str]:
    return {name.removeprefix(DEAD_HEADERS): value for name, value in letter.headers.items()}


def topic_name(chat: Kit, short: str) -> str:
    return chat.settings.kafka.topic_prefix + short


async def committed(chat: Kit) -> None:
    """Until the tailer has saved its position behind what is written now."""
    now = (await chat.mongo.admin.command("ping"))["operationTime"]
    passed = f"{now.time:08x}{now.inc:08x}"

    async def behind() -> bool:
        await chat.insert(99)
        await chat.messages.delete_one({"_id": 99})
        return (await chat.position()).get("version", "") > passed

    await until(behind, "the position is saved")


async def test_a_record_that_its_topic_does_not_take_is_a_dead_letter(chat: Kit) -> None:
    limit(chat.settings, topic_name(chat, "chat.messages"), 2_500)
    content = os.urandom(3_900).hex()
    async with chat.tailing(), chat.topic() as topic:
        await chat.following()
        await chat.insert(1, content=content)
        await chat.insert(2)
        await topic.until(lambda: "text 2" in topic.texts, "the message after it")
        await committed(chat)
        (letter,) = await _committed_letters(chat)
    assert letter.key == "i.1"
    assert content in (letter.value or b"").decode()
    assert said(letter)["topic"] == "chat.messages"
    assert said(letter)["exception.class.name"] == "MessageSizeTooLargeError"
    assert content not in str(said(letter))
    assert "i.1" not in topic.last()


async def _committed_letters(chat: Kit) -> list[Any]:
    """What readers of committed records get: what a failed transaction sent is not among it."""
    async with chat.topic("chat.messages.dead", isolation="read_committed") as dead:
        await dead.until(lambda: dead.records, "the dead letter")
        return dead.records
