"""A field mapping corrected later: what it reads otherwise gets a new version, once, and nothing else does."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from eden_memory.replay.dead_letters import DeadLetterHandling
from eden_memory.replay.installation import Installation
from eden_memory.settings import Settings
from eden_memory.source.inbox_store import ask
from tests.integration.source.harness import Kit, Topic, message, tailer_process, until

pytestmark = pytest.mark.servers
MANY = 9
OURS = {"human": "user", "ai": "assistant"}


def mapped(settings: Settings, **fields: Any) -> Settings:
    """The settings with another field mapping."""
    return settings.model_copy(update={"messages": settings.messages.model_copy(update=fields)})


async def write(chat: Kit, **fields: Any) -> None:
    """Messages as an application with roles of its own writes them; every third is the assistant's."""
    for number in range(MANY):
        await chat.insert(number, role="ai" if number % 3 == 0 else "human", **fields)


async def reread(chat: Kit, **fields: Any) -> None:
    """Ask as `eden source reread` does, and wait until it is done."""
    request = await ask(chat.inbox, {"kind": "reread", "asked_by": "test", **fields})
    await until(lambda: _gone(chat, request), "the request is done")


async def _gone(chat: Kit, request: Any) -> bool:
    return await chat.inbox.find_one({"_id": request}) is None


async def result(chat: Kit) -> dict[str, Any]:
    found = (await chat.position())["reread"]
    return {name: found[name] for name in ("read", "changed", "accepted", "refused")}


def roles(topic: Topic) -> Counter[str]:
    """By role, of the newest record of each message."""
    newest = {one.key: one.message.role for one in topic.records if one.value is not None}
    return Counter(newest.values())


async def test_a_corrected_role_gives_each_message_a_new_version_once(chat: Kit) -> None:
    await write(chat)
    async with chat.topic() as topic:
        async with chat.tailing():
            await topic.until(lambda: len(topic.records) >= MANY, "all are recorded")
        first = topic.records[0].message
        assert roles(topic) == {"other": MANY}
        async with chat.tailing(mapped(chat.settings, roles=OURS)):
            await reread(chat)
            await topic.until(lambda: len(topic.records) >= 2 * MANY, "all are recorded again")
            assert await result(chat) == {"read": MANY, "changed": MANY, "accepted": 0, "refused": 0}
            await reread(chat)
            assert (await result(chat))["changed"] == 0
            await topic.until_marked()
        assert len(topic.records) == 2 * MANY
        assert roles(topic) == {"user": 6, "assistant": 3}
        for one in topic.records[MANY:]:
            (before,) = [old.message for old in topic.records[:MANY] if old.key == one.key]
            assert one.message.version > before.version
            assert (one.message.origin, one.message.text) == ("reread", before.text)
            assert one.message.mapping not in (None, first.mapping)
            assert (
                one.envelope.time
                == next(old.envelope.time for old in topic.records[:MANY] if old.key == one.key)
                or one.message.created_at is None
            )
    position = await chat.position()
    assert (position["mapping"], position["reread_due"]) == (topic.records[-1].message.mapping, False)


async def test_an_edited_text_keeps_the_time_of_its_edit(chat: Kit) -> None:
    await write(chat)
    async with chat.topic() as topic:
        async with chat.tailing():
            await chat.following()
            await chat.messages.update_one({"_id": 1}, {"$set": {"content": "edited"}})
            await topic.until(lambda: len(topic.records) > MANY, "the edit is recorded")
        (edited,) = [one.message for one in topic.records if one.message.origin == "stream"]
        assert edited.edited_at is not None
        async with chat.tailing():
            await reread(chat)
            await topic.until_marked()
        assert len(topic.records) == MANY + 1, "an edited message is read alike"
        async with chat.tailing(mapped(chat.settings, roles=OURS)):
            await reread(chat)
            await topic.until(lambda: len(topic.records) > 2 * MANY, "all are recorded again")
        assert [one.message.edited_at for one in topic.records[MANY + 1 :] if one.key == "i.1"] == [
            edited.edited_at
        ]


async def test_only_what_the_mapping_reads_otherwise_is_recorded_again(chat: Kit) -> None:
    await write(chat)
    async with chat.topic() as topic:
        async with chat.tailing():
            await topic.until(lambda: len(topic.records) >= MANY, "all are recorded")
        async with chat.tailing(mapped(chat.settings, roles={"ai": "assistant"})):
            await reread(chat)
            await topic.until(lambda: len(topic.records) >= MANY + MANY / 3, "some are recorded again")
            await topic.until_marked()
        again = topic.records[MANY:]
    assert {one.message.role for one in again} == {"assistant"}
    assert len(again) == MANY / 3


async def test_what_the_old_mapping_refused_is_recorded_and_its_dead_letters_are_settled(chat: Kit) -> None:
    for number in range(MANY):
        whole = message(number)
        await chat.messages.insert_one({**whole, "session_id": None, "thread": {"id": whole["session_id"]}})
    await chat.messages.insert_one({**message(99), "session_id": None})
    corrected = mapped(chat.settings, session_id="thread.id")
    async with chat.topic() as topic:
        async with chat.tailing():
            await chat.letters(MANY + 1)
            await chat.following()
        assert not topic.records
        async with chat.tailing(corrected):
            await reread(chat)
            await topic.until(lambda: len(topic.records) == MANY, "all are recorded")
            assert await result(chat) == {"read": MANY + 1, "changed": MANY, "accepted": MANY, "refused": 1}
            await reread(chat)
            assert await result(chat) == {"read": MANY + 1, "changed": 0, "accepted": 0, "refused": 1}
            await topic.until_marked()
        assert len(topic.records) == MANY
        letters = await chat.letters()
        assert Counter(letter.state for letter in letters) == {"published": MANY, "dead": 1}, (
            "one letter each"
        )
        assert [letter.key for letter in letters if letter.state == "dead"] == [b'{"_id": 99}']


async def test_a_message_whose_letter_is_tried_again_is_read_again(chat: Kit) -> None:
    for number in range(3):
        await chat.messages.insert_one({**message(number), "session_id": None})
    async with chat.topic() as topic, chat.tailing():
        first, second, _ = sorted(await chat.letters(3), key=lambda letter: letter.key or b"")
        await chat.following()
        await chat.messages.update_one({"_id": 0}, {"$set": {"session_id": "s"}})
        settings = chat.settings
        handling = DeadLetterHandling(Installation(settings, chat.mongo[settings.mongodb.database]))
        assert await handling.retry([first, second], "test") == ["asked", "asked"]
        await until(lambda: _empty(chat), "both are read")
        await topic.until(lambda: "i.0" in topic.last(), "the one that can be read now is recorded")
        states = {letter.key: letter.state for letter in await chat.letters()}
    assert states == {b'{"_id": 0}': "published", b'{"_id": 1}': "dead", b'{"_id": 2}': "dead"}


async def test_a_selection_leaves_the_rest_as_it_is(chat: Kit) -> None:
    """Times of any kind that the mapping reads count."""
    times: list[Any] = ["2026-01-01T00:00:00Z", 1_790_000_000, "2026-09-30T00:00:00+02:00", None]
    for number, created_at in enumerate(times):
        await chat.insert(number, role="human", created_at=created_at, session_id=f"s{number}")
    corrected = mapped(chat.settings, roles=OURS)
    async with chat.topic() as topic:
        async with chat.tailing():
            await topic.until(lambda: len(topic.records) >= len(times), "all are recorded")
            await chat.following()
        async with chat.tailing(corrected):
            await reread(chat, session_id="s0")
            await topic.until(lambda: len(topic.records) >= 5, "the session is recorded again")
            assert (await chat.position())["reread_due"]
            await reread(chat, since=datetime(2026, 6, 1, tzinfo=UTC))
            await topic.until(lambda: len(topic.records) >= 8, "the others are recorded again")
            await topic.until_marked()
        assert [one.key for one in topic.records[4:5]] == ["i.0"]
        assert {one.key for one in topic.records[5:]} == {"i.1", "i.2", "i.3"}


async def test_a_selection_of_nothing_and_an_unchanged_mapping_record_nothing(chat: Kit) -> None:
    await write(chat, created_at=datetime(2026, 3, 1, tzinfo=UTC))
    async with chat.topic() as topic, chat.tailing():
        await topic.until(lambda: len(topic.records) >= MANY, "all are recorded")
        await chat.following()
        nothing = {"read": 0, "changed": 0, "accepted": 0, "refused": 0}
        for fields in ({"session_id": "nobody's"}, {"since": datetime(2099, 1, 1, tzinfo=UTC)}):
            await reread(chat, **fields)
            assert await result(chat) == nothing
        await reread(chat)
        assert await result(chat) == nothing | {"read": MANY}
        await topic.until_marked()
        assert len(topic.records) == MANY


async def test_a_request_that_cannot_be_read_is_a_dead_letter(chat: Kit) -> None:
    async with chat.tailing():
        await chat.following()
        await ask(chat.inbox, {"kind": "reread", "since": "soon"})
        await ask(chat.inbox, {"kind": "reread", "session_id": {"a": 1}})
        assert all("soon" not in str(letter) for letter in await chat.letters(2)), "both are refused"
        await until(lambda: _empty(chat), "the inbox is empty")


async def _empty(chat: Kit) -> bool:
    return await chat.inbox.count_documents({}) == 0


@pytest.mark.slow
async def test_a_tailer_killed_while_it_reads_again_leaves_the_rest_to_the_next(
    app: Kit, tmp_path: Path
) -> None:
    many = 3_000
    await app.messages.insert_many([message(one, role="human") for one in range(many)])
    slow = app.with_tailer(batch_messages=20)
    corrected = mapped(slow, roles=OURS)
    async with app.topic() as topic:
        async with app.tailing():
            await topic.until(lambda: len(topic.records) >= many, "all are recorded")
            await app.following()
        await ask(app.inbox, {"kind": "reread"})
        async with tailer_process(corrected, tmp_path / "first.log") as first:
            await topic.until(lambda: len(topic.records) > many, "some are recorded again")
            first.process.kill()
            await first.ended()
        assert await app.inbox.count_documents({}) == 1
        async with tailer_process(corrected, tmp_path / "second.log"):
            await until(lambda: _empty(app), "the request is done")
        async with app.tailing(corrected):
            await topic.until_marked()
        assert roles(topic) == {"user": many}
        assert Counter(Counter(one.key for one in topic.records).values()).keys() <= {2, 3}
