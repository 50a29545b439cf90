"""Documents that list their messages: every element is a message, whatever happens to the list and to the tailer."""

import asyncio
import json
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from eden_memory import metrics
from eden_memory.schemas.documents import MessageLists
from eden_memory.settings import Settings
from eden_memory.source.inbox_store import ask
from tests.awaiting import until
from tests.integration.source.harness import Kit, Topic, kit, tailer_process

pytestmark = pytest.mark.servers


def listing(settings: Settings) -> Settings:
    """Map documents `{_id, user, messages: [{role, content}]}`."""
    paths = {
        "list": "messages",
        "session_id": "_id",
        "user_id": "user",
        "role": "messages.role",
        "content": "messages.content",
        "created_at": "messages.ts",
    }
    return settings.model_copy(update={"messages": settings.messages.model_copy(update=paths)})


def said(*texts: str, role: str = "user") -> list[dict[str, str]]:
    return [{"role": role, "content": text} for text in texts]


@pytest.fixture
def quick(quick: Settings) -> Settings:
    return listing(quick)


async def stands(chat: Kit, topic: Topic, *texts: str) -> None:
    """Wait until these texts, and no others, are what the topic holds at last."""
    await topic.until(lambda: sorted(topic.last().values()) == sorted(texts), f"{texts}")


async def test_a_list_is_followed_through_everything_that_happens_to_it(chat: Kit) -> None:
    old = await chat.messages.insert_one({"_id": "old", "user": "ann", "messages": said("one", "two")})
    async with chat.tailing(), chat.topic() as topic:
        await stands(chat, topic, "one", "two")
        await chat.following()
        keys = {text: key for key, text in topic.last().items()}
        first = next(one.message for one in topic.records if one.value)
        assert (first.session_id, first.user_id, first.role) == ("s.old", "s.ann", "user")
        mine = {"_id": old.inserted_id}

        await chat.messages.update_one(mine, {"$push": {"messages": said("three")[0]}})
        await stands(chat, topic, "one", "two", "three")
        assert len(topic.records) == 3, "a push tells nothing but what it adds"

        await chat.messages.update_one(mine, {"$set": {"messages.1.content": "two, corrected"}})
        await stands(chat, topic, "one", "two, corrected", "three")
        assert topic.last()[keys["two"]] == "two, corrected"
        assert topic.records[-1].message.edited_at is not None

        trimmed = {"$push": {"messages": {"$each": said("four"), "$slice": -3}}}
        await chat.messages.update_one(mine, trimmed)
        await stands(chat, topic, "two, corrected", "three", "four")
        assert [one.key for one in topic.records if one.ended == "deleted"] == [keys["one"]]
        assert len(topic.records) == 6, "a shift tells nothing"

        await chat.messages.update_one(mine, {"$pull": {"messages": {"content": "three"}}})
        await stands(chat, topic, "two, corrected", "four")
        own = {"id": "m-1", "role": "assistant", "content": "with an id"}
        await chat.messages.insert_one({"_id": "new", "user": "ben", "messages": [own]})
        await stands(chat, topic, "two, corrected", "four", "with an id")
        assert "s.s.new%2Fs.m-1" in topic.last()

        await chat.messages.delete_one(mine)
        await stands(chat, topic, "with an id")
        lists = chat.mongo[chat.settings.mongodb.database][chat.settings.names[MessageLists.COLLECTION]]

        async def dropped() -> bool:
            return [row["_id"] async for row in lists.find()] == ["s.new"]

        await until(dropped, "nothing is left of the deleted one's list")


async def test_a_change_of_a_long_list_costs_its_difference(chat: Kit) -> None:
    many = said(*(f"text {number}" for number in range(3_000)))
    await chat.messages.insert_one({"_id": "long", "user": "ann", "messages": many})
    async with chat.tailing(), chat.topic() as topic:
        await topic.until(lambda: len(topic.records) == 3_000, "all of it")
        await chat.following()
        database = chat.mongo[chat.settings.mongodb.database]
        before = await written(database, chat.settings)
        await chat.messages.update_one({"_id": "long"}, {"$push": {"messages": said("more")[0]}})
        await topic.until(lambda: len(topic.records) == 3_001, "the new one")
        await chat.messages.update_one({"_id": "long"}, {"$set": {"messages.7.content": "edited"}})
        await topic.until(lambda: len(topic.records) == 3_002, "the edited one")
        await chat.messages.update_one({"_id": "long"}, {"$pop": {"messages": -1}})
        await topic.until(lambda: topic.records[-1].ended == "deleted", "the first one's end")
        assert len(topic.records) == 3_003
        after = await written(database, chat.settings)
        changed = [name for name, row in after.items() if before.get(name) != row]
        assert len(after) > 8
        assert len(changed) == 2, "the document's own row, and the one that held both old elements"


async def test_lists_that_were_lost_are_found_again_in_the_topic(chat: Kit) -> None:
    await chat.messages.insert_one({"_id": "a", "user": "ann", "messages": said("one", "two", "three")})
    database, names = chat.mongo[chat.settings.mongodb.database], chat.settings.names
    async with chat.topic() as topic:
        async with chat.tailing():
            await stands(chat, topic, "one", "two", "three")
            await chat.following()
            await chat.messages.update_one({"_id": "a"}, {"$pop": {"messages": -1}})
            await stands(chat, topic, "two", "three")
        keys = topic.last().keys()
        for lost in ("positions", "installation", MessageLists.COLLECTION):
            await database[names[lost]].drop()
        await chat.messages.update_one({"_id": "a"}, {"$set": {"messages.0.content": "two, edited"}})
        async with chat.tailing():
            await stands(chat, topic, "two, edited", "three")
            await chat.following()
            await chat.messages.update_one({"_id": "a"}, {"$set": {"messages.1.content": "three, edited"}})
            await stands(chat, topic, "two, edited", "three, edited")
            assert topic.last().keys() == keys


async def test_lists_are_merged_after_a_lost_position_and_read_again_with_another_mapping(chat: Kit) -> None:
    for name in ("kept", "gone"):
        await chat.messages.insert_one(
            {"_id": name, "user": "ann", "messages": said(f"{name} 1", f"{name} 2")}
        )
    async with chat.topic() as topic:
        async with chat.tailing():
            await stands(chat, topic, "kept 1", "kept 2", "gone 1", "gone 2")
            await chat.following()
        await chat.spoil_position("82" + "00" * 8 + "garbage")
        await chat.messages.delete_one({"_id": "gone"})
        grown = {"$push": {"messages": {"$each": said("kept 3"), "$slice": -2}}}
        await chat.messages.update_one({"_id": "kept"}, grown)
        async with chat.tailing():
            await stands(chat, topic, "kept 2", "kept 3")
            await chat.following()
            assert {one.ended for one in topic.records} == {None, "deleted", "missing"}
        users = {"user_id": "messages.by"}
        messages = chat.settings.messages.model_copy(update=users)
        await chat.messages.update_one({"_id": "kept"}, {"$set": {"messages.1.by": "ben"}})
        corrected = chat.settings.model_copy(update={"messages": messages})
        async with chat.tailing(corrected):
            await ask(chat.inbox, {"kind": "reread", "asked_by": "test"})
            await topic.until(
                lambda: topic.records[-1].value and topic.records[-1].message.user_id == "s.ben", "ben"
            )
            await stands(chat, topic, "kept 2", "kept 3")
            await chat.messages.update_one(
                {"_id": "kept"}, {"$set": {"messages.0.content": "kept 2, edited"}}
            )
            await stands(chat, topic, "kept 2, edited", "kept 3")


async def written(database: Any, settings: Settings) -> dict[str, Any]:
    return {row["_id"]: row async for row in database[settings.names[MessageLists.COLLECTION]].find()}


async def test_killed_at_any_moment_nothing_is_lost_or_doubled(
    quick: Settings, topics: None, tmp_path: Path
) -> None:
    order = random.Random(36)
    async with kit(listing(quick), topics=()) as app, app.topic() as topic:
        settings = app.with_tailer(lease_seconds=1.0, commit_seconds=0.6)
        documents = {name: list[str]() for name in ("a", "b", "c")}
        for name in documents:
            await app.messages.insert_one({"_id": name, "user": "ann", "messages": []})
        number = 0
        for life in range(2):
            async with tailer_process(settings, tmp_path / str(life)) as tailer:
                await tailer.until_said('"event": "leads"')
                for _ in range(order.randint(30, 60)):
                    number += 1
                    await change(app, documents, order, f"text {number}")
                    await asyncio.sleep(order.random() * 0.02)
                tailer.signal(signal.SIGKILL)
                await tailer.ended()
        async with tailer_process(settings, tmp_path / "last") as tailer:
            await tailer.until_said('"event": "leads"')
            await topic.until_marked()
            await stands(app, topic, *(text for texts in documents.values() for text in texts))


async def change(app: Kit, documents: dict[str, list[str]], order: random.Random, text: str) -> None:
    """Do to one of the lists, and to what is known of it, what an application may do."""
    name = order.choice(list(documents))
    texts, one = documents[name], {"_id": name}
    match order.choice(("push", "push", "push", "edit", "trim", "pull", "delete")):
        case "edit" if texts:
            at = order.randrange(len(texts))
            texts[at] = text
            await app.messages.update_one(one, {"$set": {f"messages.{at}.content": text}})
        case "trim" if len(texts) > 3:
            documents[name] = [*texts, text][-3:]
            await app.messages.update_one(one, {"$push": {"messages": {"$each": said(text), "$slice": -3}}})
        case "pull" if texts:
            gone = texts.pop(order.randrange(len(texts)))
            await app.messages.update_one(one, {"$pull": {"messages": {"content": gone}}})
        case "delete" if order.random() < 0.3:
            documents[name] = [text]
            await app.messages.delete_one(one)
            await app.messages.insert_one({**one, "user": "ann", "messages": said(text)})
        case _:
            texts.append(text)
            await app.messages.update_one(one, {"$push": {"messages": said(text)[0]}})


async def test_messages_in_json_texts_are_read_and_what_is_no_json_becomes_a_letter(chat: Kit) -> None:
    paths = {"list": None, "session_id": "SessionId", "role": "History::json.type"}
    paths |= {"content": "History::json.data.content", "user_id": "SessionId"}
    messages = chat.settings.messages.model_copy(
        update={**paths, "roles": {"human": "user", "ai": "assistant"}}
    )
    settings = chat.settings.model_copy(update={"messages": messages})
    async with chat.tailing(settings), chat.topic() as topic:
        await chat.following()
        texts = ['{"type": "human", "data": {"content": "Hello"}}', '{"type": "human", "data"', ""]
        rows = [{"_id": number, "SessionId": "ann", "History": text} for number, text in enumerate(texts)]
        await chat.messages.insert_many(rows)
        await topic.until(lambda: topic.texts == ["Hello"], "what can be read")
        assert topic.records[0].message.role == "user"
        (letter,) = await chat.letters(1)
        assert letter.reason == "History is no JSON text"
        repaired = '{"type": "ai", "data": {"content": "Hello, Ann"}}'
        await chat.messages.update_one({"_id": 1}, {"$set": {"History": repaired}})
        await topic.until(lambda: topic.texts == ["Hello", "Hello, Ann"], "what can be read now")
        assert topic.records[-1].message.role == "assistant"


async def test_a_list_in_a_json_text_is_a_list(chat: Kit) -> None:
    paths = {"list": "log::json", "role": "log::json.role", "content": "log::json.content"}
    messages = chat.settings.messages.model_copy(update={**paths, "created_at": "log::json.ts"})
    settings = chat.settings.model_copy(update={"messages": messages})
    unread = metrics.TAILER_LEFT_OUT.labels("json")
    before = unread._value.get()  # pyright: ignore
    async with chat.tailing(settings), chat.topic() as topic:
        await chat.following()
        await chat.messages.insert_one({"_id": 1, "user": "ann", "log": json.dumps(said("one", "two"))})
        await stands(chat, topic, "one", "two")
        await chat.messages.update_one({"_id": 1}, {"$set": {"log": json.dumps(said("two", "three"))}})
        await stands(chat, topic, "two", "three")
        assert len(topic.records) == 4
        await chat.messages.update_one({"_id": 1}, {"$set": {"log": '{"role"'}})
        (letter,) = await chat.letters(1)
        assert letter.reason == "log is no JSON text"
        assert unread._value.get() == before + 1  # pyright: ignore
        await topic.until_marked()
        await stands(chat, topic, "two", "three")
