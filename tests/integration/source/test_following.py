"""Following the change stream: what the application writes arrives, once it matters, where it belongs."""

import asyncio
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from bson import Binary, Decimal128, ObjectId, encode, json_util
from bson.binary import UuidRepresentation
from bson.raw_bson import RawBSONDocument
from prometheus_client import REGISTRY

from eden_memory.mongo.change_stream import token_time
from eden_memory.mongo.changes import PART, version_of
from eden_memory.schemas.events import Watermark
from tests.integration.source.harness import PARTITIONS, Kit, message, until

pytestmark = pytest.mark.servers


async def test_messages_arrive_in_the_order_of_their_session(chat: Kit) -> None:
    async with chat.tailing(), chat.topic() as topic:
        await chat.following()
        for number in range(50):
            await chat.insert(number)
        await topic.until(lambda: len(topic.records) >= 50, "50 messages")
        for session in range(5):
            keys = [one.key for one in topic.records if one.message.session_id == f"s.s{session}"]
            assert keys == [f"i.{number}" for number in range(session, 50, 5)]
        assert {one.message.origin for one in topic.records} == {"stream"}
        assert all(one.partition == chat.partition(f"s{int(one.key[2:]) % 5}") for one in topic.records)


async def test_messages_of_the_role_user_that_name_no_author_are_counted(chat: Kit) -> None:
    before = _authorless()
    async with chat.tailing(), chat.topic() as topic:
        await chat.following()
        await chat.insert(1)
        await chat.insert(2, user_id=None)
        await chat.insert(3, user_id=None, role="assistant")
        await chat.messages.insert_one({"_id": 4, "session_id": "s4", "role": "user", "content": "text 4"})
        await topic.until(lambda: "text 4" in topic.texts, "the last one")
        await until(lambda: _authorless() == before + 2, "both are counted")
        await topic.until_marked()
    assert sorted(one.key for one in topic.records) == ["i.1", "i.2", "i.3", "i.4"]
    assert _authorless() == before + 2


def _authorless() -> float:
    return REGISTRY.get_sample_value("eden_tailer_authorless_messages_total") or 0.0


@pytest.mark.parametrize("pre_images", [True, False])
async def test_every_way_of_writing_ends_as_the_collection_is(chat: Kit, pre_images: bool) -> None:
    if pre_images:
        await chat.kept_before()
    async with chat.tailing(), chat.topic() as topic:
        await chat.following()
        for number in range(6):
            await chat.insert(number)
        await topic.until(lambda: len(topic.records) == 6, "the inserts")
        await chat.messages.update_one({"_id": 0}, {"$set": {"content": "updated"}})
        await chat.messages.replace_one({"_id": 1}, message(1, content="replaced"))
        await chat.messages.update_one({"_id": 2}, {"$set": {"session_id": "s-other"}})
        await chat.messages.delete_one({"_id": 3})
        await chat.messages.replace_one({"_id": 4}, message(4, session_id="s-far"))
        await chat.insert(9)
        await topic.until(lambda: "text 9" in topic.texts, "the last one")
        await topic.until_marked()
        expected = {f"i.{one['_id']}": one["content"] async for one in chat.messages.find()}
        assert topic.last() == expected
        deleted = [one for one in topic.records if one.ended == "deleted"]
        assert len(deleted) == (1 if pre_images else PARTITIONS)
        (version,) = {one.envelope.entity_version for one in deleted}
        assert {one.envelope.id for one in deleted} == {f"i.3@{version}/deleted"}
        moved = {one.key for one in topic.records if one.ended == "moved"}
        assert {"i.2", "i.4"} <= moved if not pre_images else moved == {"i.2", "i.4"}


async def test_updates_of_fields_that_do_not_matter_publish_nothing(chat: Kit) -> None:
    async with chat.tailing(), chat.topic() as topic:
        await chat.following()
        await chat.insert(1)
        for likes in range(20):
            await chat.messages.update_one({"_id": 1}, {"$set": {"likes": likes}, "$unset": {"seen": 1}})
        await chat.insert(6)
        await topic.until(lambda: "text 6" in topic.texts, "the next message of the session")
        assert topic.texts == ["text 1", "text 6"]


async def test_updates_in_one_batch_are_coalesced(chat: Kit) -> None:
    async with chat.tailing():
        await chat.following()
    await chat.insert(1)
    for number in range(200):
        await chat.messages.update_one({"_id": 1}, {"$set": {"content": f"streamed {number}"}})
    async with chat.tailing(), chat.topic() as topic:
        await topic.until(lambda: topic.last() == {"i.1": "streamed 199"}, "the last text")
        assert len(topic.records) <= 5


async def test_updates_far_apart_in_one_batch_are_coalesced_and_its_inserts_stay_in_order(chat: Kit) -> None:
    async with chat.tailing():
        await chat.following()
    await chat.insert(0)
    for number in range(2 * PART):
        if number % PART == 0:
            await chat.messages.update_one({"_id": 0}, {"$set": {"content": f"streamed {number}"}})
        await chat.messages.insert_one(message(number + 1, session_id="s"))
    await chat.messages.update_one({"_id": 0}, {"$set": {"content": "the last text"}})
    async with chat.tailing(), chat.topic() as topic:
        await topic.until(lambda: len(topic.last()) > 2 * PART, "all messages")
        await topic.until(lambda: topic.last()["i.0"] == "the last text", "the last text")
        inserted = [arrived.key for arrived in topic.records if arrived.key != "i.0"]
        assert inserted == [f"i.{number + 1}" for number in range(2 * PART)]
        assert len(topic.records) - len(inserted) <= 2


async def test_inserts_beyond_one_part_arrive_in_order(chat: Kit) -> None:
    async with chat.tailing():
        await chat.following()
    await chat.messages.insert_many([message(number, session_id="s") for number in range(3 * PART + 7)])
    async with chat.tailing(), chat.topic() as topic:
        await topic.until(lambda: len(topic.records) > 3 * PART + 6, "all messages")
        assert [arrived.key for arrived in topic.records] == [f"i.{number}" for number in range(3 * PART + 7)]


async def test_a_placeholder_is_recorded_when_its_text_arrives(chat: Kit) -> None:
    async with chat.tailing(), chat.topic() as topic:
        await chat.following()
        await chat.insert(1, role="assistant", content="")
        await chat.insert(6)
        await topic.until(lambda: topic.texts == ["text 6"], "the next message of the session")
        await chat.messages.update_one({"_id": 1}, {"$set": {"content": "at last"}})
        await topic.until(lambda: topic.texts == ["text 6", "at last"], "the text")


async def test_huge_documents_do_not_stop_the_stream(chat: Kit) -> None:
    await chat.kept_before()
    async with chat.tailing(), chat.topic() as topic:
        await chat.following()
        await chat.insert(1, attachment=Binary(b"x" * 15_000_000))
        await chat.insert(2, content="y " * 5_000_000)
        await chat.messages.update_one({"_id": 1}, {"$set": {"attachment": Binary(b"z" * 15_500_000)}})
        await chat.messages.update_one({"_id": 1}, {"$set": {"content": "changed"}})
        await chat.messages.delete_one({"_id": 2})
        await chat.insert(3)
        await topic.until(lambda: "text 3" in topic.texts, "the message after them")
        await topic.until_marked()
        long = next(one.message for one in topic.records if one.key == "i.2")
        assert (len(long.text), long.characters, long.truncated) == (8_000, 10_000_000, True)
        assert topic.last() == {"i.1": "changed", "i.3": "text 3"}


async def test_what_cannot_be_used_is_named_by_a_dead_letter_without_its_content(chat: Kit) -> None:
    unusable: list[dict[str, Any]] = [
        {"_id": 1, "role": "user", "content": "no session", "more": {"price": Decimal128("1.5")}},
        {"_id": 2, "session_id": [1], "content": "x"},
        {"_id": 3, "session_id": "s", "content": 5, "at": datetime(2026, 1, 2, tzinfo=UTC)},
        {"_id": 1.5, "session_id": "s", "content": "an id of no use"},
        {"_id": {"a": 1}, "session_id": "s", "content": "another"},
        {"_id": UUID(int=5), "session_id": UUID(int=6), "content": 5, "by": [UUID(int=7)]},
        {"_id": 4, "session_id": [], "content": "x", "user_id": [], "huge": "h" * 5_000_000},
    ]
    async with chat.tailing(), chat.topic() as topic:
        await chat.following()
        await chat.messages.insert_many(unusable)
        await chat.insert(9)
        await topic.until(lambda: topic.texts == ["text 9"], "the usable message")
        found = {(one.key or b"").decode(): one for one in await chat.letters(len(unusable))}
        assert set(found) == {
            json_util.dumps({"_id": document["_id"]}, json_options=RELAXED) for document in unusable
        }
        assert not any(letter.value or letter.headers for letter in found.values())
        assert found['{"_id": 1}'].reason == "it has no session_id"


RELAXED = json_util.RELAXED_JSON_OPTIONS.with_options(uuid_representation=UuidRepresentation.STANDARD)


async def test_text_that_is_not_utf_8_does_not_stop_the_stream(chat: Kit) -> None:
    good = encode(message(1, content="bad XX text"))
    spoiled = RawBSONDocument(good.replace(b"bad XX text", b"bad \xff\xfe text"))
    async with chat.tailing(), chat.topic() as topic:
        await chat.following()
        await chat.messages.insert_one(spoiled)  # pyright: ignore[reportArgumentType]
        await chat.insert(6)
        await topic.until(lambda: "text 6" in topic.texts, "the next message of the session")
        assert topic.texts == ["bad \ufffd\ufffd text", "text 6"]


async def test_watermarks_say_up_to_when_everything_is_there(chat: Kit) -> None:
    async with chat.tailing(), chat.topic() as topic:
        await chat.following()
        await chat.insert(1)
        await topic.until(lambda: topic.texts == ["text 1"], "the message")
        await topic.until_marked()
        for number in range(PARTITIONS):
            marks = [one for one in topic.marks if one.partition == number]
            events = [one.event for one in marks]
            assert all(isinstance(one, Watermark) and one.partition == number for one in events)
            versions = [one.version for one in events if isinstance(one, Watermark)]
            assert versions == sorted(versions)
        for one in topic.records:
            later = [mark.offset for mark in topic.marks if mark.partition == one.partition]
            earlier = [
                mark.mark
                for mark in topic.marks
                if mark.partition == one.partition and mark.offset < one.offset
            ]
            assert max(later) > one.offset
            assert all(version < one.message.version for version in earlier)


async def test_there_is_no_watermark_before_the_backfill_is_complete(chat: Kit) -> None:
    await chat.messages.insert_many([message(number) for number in range(500)])
    async with chat.tailing(chat.with_tailer(batch_messages=50)), chat.topic() as topic:
        await topic.until_marked()
        first = {one.partition: one.offset for one in reversed(topic.marks)}
        assert len(topic.records) == 500
        assert all(one.offset < first[one.partition] for one in topic.records)


async def test_the_position_of_a_quiet_collection_moves_on(chat: Kit) -> None:
    async with chat.tailing():
        await chat.following()
        before = await chat.position()

        async def moved() -> bool:
            await chat.mongo[chat.settings.mongodb.database]["elsewhere"].insert_one({})
            now = await chat.position()
            return now["token"] != before["token"] and now["version"] > before["version"]

        await until(moved, "the position moves without a message")


async def test_a_token_tells_its_cluster_time(chat: Kit) -> None:
    """Canary: the form of resume tokens is not documented."""
    async with await chat.messages.watch() as stream:
        await chat.insert(1)
        event = await anext(stream)
    moment = event["clusterTime"]
    assert token_time(event["_id"]["_data"]) == (moment.time, moment.inc)


async def test_versions_are_the_cluster_times_of_the_changes(chat: Kit) -> None:
    async with await chat.messages.watch() as stream, chat.tailing(), chat.topic() as topic:
        await chat.following()
        await chat.insert(1)
        moment = (await anext(stream))["clusterTime"]
        await topic.until(lambda: topic.texts == ["text 1"], "the message")
        assert topic.records[0].message.version == version_of(moment.time, moment.inc)
        assert topic.records[0].envelope.time.timestamp() == moment.time


async def test_many_writers_lose_nothing(chat: Kit) -> None:
    async with chat.tailing(), chat.topic() as topic:
        await chat.following()

        async def write(writer: int) -> None:
            for number in range(100):
                await chat.insert(writer * 1_000 + number, session_id=f"w{writer}")

        await asyncio.gather(*(write(writer) for writer in range(8)))
        await topic.until(lambda: len(topic.records) >= 800, "all messages")
        for writer in range(8):
            mine = [int(one.key[2:]) for one in topic.records if one.message.session_id == f"s.w{writer}"]
            assert mine == [writer * 1_000 + number for number in range(100)]


async def test_the_inbox_is_carried_to_its_topics_and_erased(chat: Kit) -> None:
    scope = {"kind": "agent", "key": "agent:s.a", "agent_id": "s.a"}
    asked: list[dict[str, Any]] = [
        {"kind": "session_ended", "session_id": "s0"},
        {"kind": "form_now", "session_id": "s0", "asked_by": "a person"},
        {"kind": "added_text", "session_id": "s0", "text": "remember this", "user_id": "ann"},
        {"kind": "fact_command", "scope": scope, "action": "add", "text": "a fact", "by": "person"},
        {"kind": "forget", "what": "user", "target": "bob"},
        {"kind": "nonsense", "session_id": "s0"},
    ]
    async with (
        chat.tailing(),
        chat.topic() as topic,
        chat.topic("memory.candidates") as candidates,
        chat.topic("memory.forgotten") as forgotten,
    ):
        await chat.following()
        await chat.insert(0)
        for document in asked:
            await chat.inbox.insert_one({"_id": ObjectId(), **document})
        await chat.insert(5)
        await topic.until(lambda: len(topic.records) == 5, "messages and controls")
        assert [one.event.NAME for one in topic.records] == [
            "MessageRecorded",
            "SessionEnded",
            "FormationAsked",
            "MessageRecorded",
            "MessageRecorded",
        ]
        await candidates.until(lambda: len(candidates.records) == 1, "the fact command")
        await forgotten.until(lambda: len(forgotten.records) == 1, "the wish to forget")
        assert [letter.collection for letter in await chat.letters(1)] == [chat.inbox.name], "the nonsense"
        await until(lambda: _empty(chat), "the inbox is erased")
        await chat.insert(10)
        await topic.until(lambda: "text 10" in topic.texts, "a later message")
        assert len(topic.records) == 6, "erasing the inbox publishes nothing"


async def _empty(chat: Kit) -> bool:
    return await chat.inbox.count_documents({}) == 0


async def test_inbox_documents_that_a_dead_leader_carried_are_erased(chat: Kit) -> None:
    async with chat.tailing():
        await chat.following()
    position = await chat.position()
    await chat.inbox.insert_one({"_id": "orphan", "kind": "form_now", "session_id": "s0"})
    async with chat.tailing():
        await until(lambda: _empty(chat), "carried and erased")
    # The leader that carried this one, and saved the position behind it, died before it erased it.
    later = await chat.position()
    assert later["token"] != position["token"]
    await chat.inbox.insert_one({"_id": "orphan", "kind": "form_now", "session_id": "s0"})
    behind = await _token_now(chat)
    await chat.spoil_position(behind)
    async with chat.tailing(), chat.topic() as topic:
        await until(lambda: _empty(chat), "the orphan is erased")
        await topic.until_marked()
        assert [one.key for one in topic.records] == ["s.orphan"]


async def _token_now(chat: Kit) -> str:
    async with await chat.source.watch(max_await_time_ms=50) as stream:
        await stream.try_next()
        assert stream.resume_token is not None
        return str(stream.resume_token["_data"])
