"""Sessions and users that the application switches off, on real servers: no window, no text, a tombstone instead."""

from typing import Any

import pytest

from tests.integration.stages_on_servers import PARTITIONS, Topic
from tests.integration.windows.harness import Kit, changed
from tests.unit.windows.records import asked, message, names, watermark

pytestmark = pytest.mark.servers
MAPPED = {"sessions": {"collection": "sessions"}, "users": {"collection": "users"}}


def erased(topic: Topic) -> set[str]:
    """Messages whose newest record is a tombstone that says why."""
    newest = {one.key.decode(): one for one in topic.records}
    return {
        name
        for name, one in newest.items()
        if one.value is None and ("ce_reason", b"opted_out") in one.headers
    }


async def texts(kit: Kit) -> dict[str, str]:
    """Every text in the database, by message."""
    messages = {one["_id"]: one["text"] async for one in kit.database["memory_messages"].find()}
    windows = [row async for row in kit.database["memory_windows"].find()]
    kept = {one["message_id"]: one["text"] for row in windows for one in row["messages"]}
    return {name: text for name, text in {**messages, **kept}.items() if text}


@pytest.mark.parametrize("said", [{"memory": False}, {"incognito": True}, {"users": [2]}], ids=str)
async def test_a_session_that_is_off_leaves_tombstones_and_no_text(kit: Kit, said: dict[str, Any]) -> None:
    await kit.database["users"].insert_one({"_id": 2, "memory": False})
    await kit.database["sessions"].insert_many(
        [{"_id": "off", "users": [1], **said}, {"_id": "on", "users": [1]}]
    )
    settings = changed(kit.settings, **MAPPED)
    async with (
        kit.running(settings),
        kit.topic("memory.formations") as formations,
        kit.topic("chat.messages") as chat,
    ):
        await kit.put([message(f"s.m{n}", "s.off", n, n / 60, user="i.2") for n in range(1, 4)])
        await kit.put([message("s.m9", "s.on", 9, 0), asked("s.off", 10, 1), asked("s.on", 11, 1)])
        await kit.put(watermark(90, 15, partition) for partition in range(PARTITIONS))
        (one,) = await formations.until(1)
        await chat.until_true(lambda: len(erased(chat)) == 3, "three tombstones")
        await formations.read()
        assert (one.session_id, len(formations.windows)) == ("s.on", 1)
        assert erased(chat) == {"s.m1", "s.m2", "s.m3"}
        assert await texts(kit) == {"s.m9": "something to remember"}


async def test_one_of_several_users_is_left_out_from_the_moment_he_is_switched_off(kit: Kit) -> None:
    await kit.database["sessions"].insert_one({"_id": "s", "users": [1, 2]})
    await kit.database["users"].insert_many([{"_id": 1}, {"_id": 2}])
    settings = changed(kit.settings, **MAPPED)
    async with (
        kit.running(settings),
        kit.topic("memory.formations") as formations,
        kit.topic("chat.messages") as chat,
    ):
        await kit.put([message("s.m1", "s.s", 1, 0), message("s.m2", "s.s", 2, 0, user="i.2")])
        await chat.until_true(lambda: len(chat.records) == 2, "both messages")
        while len(await kit.waiting()) < 2:
            await chat.read()
        await kit.database["users"].update_one({"_id": 2}, {"$set": {"memory": False}})
        await kit.put([message("s.m3", "s.s", 3, 1, user="i.2"), asked("s.s", 10, 2)])
        (one,) = await formations.until(1)
        assert names(one) == ["s.m1"]
        assert [scope.kind for scope in one.scopes] == ["agent", "session"]
        await chat.until_true(lambda: erased(chat) == {"s.m2", "s.m3"}, "two tombstones")
        assert await texts(kit) == {"s.m1": "something to remember"}
