"""A collection that is not the one memory is formed from, is not there, or is empty: nothing ends unasked."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from eden_memory.assembly import tailer as source_tailing
from eden_memory.doctor.examine import examine
from eden_memory.errors import EdenError
from eden_memory.settings import Settings
from tests.integration.source.harness import Kit, Topic, kit, message, tailer_process, until

pytestmark = pytest.mark.servers
MANY = 8
TEXTS = {f"i.{number}": f"text {number}" for number in range(MANY)}


def collection(settings: Settings, name: str) -> Settings:
    """The settings with another messages collection."""
    messages = settings.messages.model_copy(update={"collection": name})
    return settings.model_copy(update={"messages": messages})


async def recorded(chat: Kit, topic: Topic) -> None:
    """Messages that a tailer has published, and that has stopped."""
    await chat.messages.insert_many([message(number) for number in range(MANY)])
    async with chat.tailing():
        await topic.until(lambda: topic.last() == TEXTS, "the messages")
        await chat.following()


async def unharmed(chat: Kit, topic: Topic) -> None:
    """Nothing has ended, and the right collection is still followed."""
    await chat.insert(99)
    async with chat.tailing():
        await topic.until(lambda: topic.last() == {**TEXTS, "i.99": "text 99"}, "the next message")
        await topic.until_marked()
    assert not [one.key for one in topic.records if one.ended]


@pytest.mark.parametrize("there", [pytest.param(False, marks=pytest.mark.slow), True])
async def test_eden_run_refuses_another_collection(app: Kit, tmp_path: Path, there: bool) -> None:
    other = collection(app.settings, "nope")
    if there:
        await app.source["nope"].insert_one(message(1_000))
    async with app.topic() as topic:
        await recorded(app, topic)
        async with tailer_process(other, tmp_path / "log") as wrong:
            assert await wrong.ended(60) == 1
        database = app.source.name
        assert (
            f"the settings name {database}.nope, but memory is formed from {database}.messages" in wrong.said
        )
        assert "--new-source" in wrong.said
        assert "EDEN_MONGODB_DATABASE, EDEN_KAFKA_TOPIC_PREFIX and EDEN_KAFKA_GROUP_PREFIX" in wrong.said
        assert "Traceback" not in wrong.said
        assert "stage runs" not in wrong.said, "nothing is started for it"
        await unharmed(app, topic)


def beside(settings: Settings) -> Settings:
    """What the refusal says to set for a second memory on the same servers."""
    mongodb = {"database": f"{settings.mongodb.database}_b", "prefix": "second_"}
    kafka = {
        "topic_prefix": f"{settings.kafka.topic_prefix}second.",
        "group_prefix": f"{settings.kafka.group_prefix}second.",
    }
    return collection(settings, "nope").model_copy(
        update={
            "mongodb": settings.mongodb.model_copy(update=mongodb),
            "kafka": settings.kafka.model_copy(update=kafka),
            "source": settings.source.model_copy(update={"database": settings.source_database}),
        }
    )


async def test_a_second_memory_stands_beside_the_first_with_names_of_its_own(chat: Kit) -> None:
    async with chat.topic() as first:
        await recorded(chat, first)
        async with kit(beside(chat.settings)) as second, second.topic() as own:
            await second.insert(1_000)
            async with second.tailing():
                await own.until(lambda: own.last() == {"i.1000": "text 1000"}, "its own message")
            await unharmed(chat, first)
            assert own.last() == {"i.1000": "text 1000"}
            await second.mongo.drop_database(second.settings.mongodb.database)


async def test_doctor_says_that_eden_run_would_refuse_the_collection(chat: Kit) -> None:
    async with chat.topic() as topic:
        await recorded(chat, topic)
    same, other = [
        next(one for one in (await examine(settings)).findings if one.check == "source")
        for settings in (chat.settings, collection(chat.settings, "nope"))
    ]
    database = chat.source.name
    assert (same.state, other.state) == ("ok", "fail")
    assert same.what.startswith(f"memory is formed from {database}.messages")
    reason = f"the settings name {database}.nope, but memory is formed from {database}.messages"
    assert other.what == f"`eden run` refuses this: {reason}"
    assert "eden run --new-source" in other.hint


async def test_another_collection_is_refused_also_where_no_position_is_stored(chat: Kit) -> None:
    """As in another folder, whose settings keep memory in another database of the same servers."""
    other = collection(chat.settings, "nope")
    await chat.source["nope"].insert_one(message(1_000))
    async with chat.topic() as topic:
        await recorded(chat, topic)
        positions = chat.mongo[chat.settings.mongodb.database][chat.settings.names["positions"]]
        stored = await positions.find().to_list()
        await positions.delete_many({})
        with pytest.raises(EdenError, match=r"memory is formed from .*\.messages"):
            await run(chat, other)
        await positions.insert_many(stored)
        await unharmed(chat, topic)


async def run(chat: Kit, settings: Settings, *, new_source: bool = False) -> None:
    """A tailer that is expected to end by itself."""
    async with source_tailing.tailing(settings, new_source=new_source) as part:
        await part.run()


async def emptied(chat: Kit) -> None:
    await chat.messages.delete_many({})


async def dropped(chat: Kit) -> None:
    await chat.messages.drop()


@pytest.mark.parametrize("lose", [emptied, pytest.param(dropped, marks=pytest.mark.slow)])
async def test_a_merge_with_nothing_is_refused(chat: Kit, lose: Callable[[Kit], Awaitable[None]]) -> None:
    async with chat.topic() as topic:
        await recorded(chat, topic)
        await lose(chat)
        await chat.spoil_position("82" + "00" * 8 + "garbage")
        for _ in range(2):
            with pytest.raises(EdenError, match=f"does not exist or is empty, but {MANY} messages of it"):
                await run(chat, chat.settings)
        await topic.read()
        assert not [one.key for one in topic.records if one.ended]
        async with chat.tailing(new_source=True):
            await topic.until(lambda: not topic.last(), "what was meant to be gone is ended")


async def test_a_new_source_takes_the_place_of_the_former(chat: Kit) -> None:
    other = Kit(collection(chat.settings, "moved"), chat.mongo)
    await other.messages.insert_many([message(number) for number in (0, 1, 500)])
    kept = {"i.0": "text 0", "i.1": "text 1", "i.500": "text 500"}
    async with chat.topic() as topic:
        await recorded(chat, topic)
        async with other.tailing(new_source=True):
            await topic.until(lambda: topic.last() == kept, "the new collection's messages")
            await other.following()
        await other.insert(501)
        async with other.tailing():
            await topic.until(lambda: "text 501" in topic.texts, "the new source is followed")
        with pytest.raises(EdenError, match="--new-source") as refused:
            await run(chat, chat.settings)
        assert "moved" in refused.value.what
        async with chat.tailing(new_source=True):
            await topic.until(lambda: topic.last() == TEXTS, "the former source, chosen anew")


async def test_a_source_that_is_followed_is_not_replaced(chat: Kit) -> None:
    other = collection(chat.settings, "moved")
    await chat.source["moved"].insert_one(message(1_000))
    async with chat.topic() as topic:
        await recorded(chat, topic)
        async with chat.tailing() as part:
            await until(lambda: part.leading, "the former source's tailer leads")
            with pytest.raises(EdenError, match="still follows"):
                await run(chat, other, new_source=True)
        await unharmed(chat, topic)


async def test_a_mistake_before_the_first_message_costs_nothing(app: Kit, tmp_path: Path) -> None:
    empty = Kit(collection(app.settings, "nope"), app.mongo)
    async with app.topic() as topic:
        async with tailer_process(empty.settings, tmp_path / "log") as wrong:
            await wrong.until_said("memory forms once messages are written there")
            await empty.following()
            await topic.until(lambda: topic.marks, "it follows the empty collection")
        await recorded(app, topic)
