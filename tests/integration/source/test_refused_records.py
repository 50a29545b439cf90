"""Records that the broker will never take: dead letters, and the tailer goes on."""

import os

import pytest

from tests.integration.kafka_limits import limit
from tests.integration.source.harness import Kit, until

pytestmark = pytest.mark.servers


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
        (letter,) = await chat.letters(1)
    assert (letter.key, letter.value) == (b"i.1", None), "it is read again from its document"
    assert letter.topic == topic_name(chat, "chat.messages")
    assert letter.error == "MessageSizeTooLargeError"
    assert "message:i.1" in (letter.named or ())
    assert content not in str(letter)
    assert "i.1" not in topic.last()
