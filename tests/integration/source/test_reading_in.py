"""What is older than the stream: the first start's backfill, and the merge after a lost position."""

import asyncio
import tracemalloc
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from bson import Decimal128, Int64, ObjectId, Timestamp
from pymongo import IndexModel

from eden_memory import metrics
from eden_memory.settings import Settings
from eden_memory.source.leadership import Leadership
from tests.integration.source.harness import Kit, Topic, message, tailer_process, until

pytestmark = pytest.mark.servers
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
MANY = 300


def old(number: int, **fields: Any) -> dict[str, Any]:
    """Created in another order than the ids', some at the same time, some at none."""
    created = BEGAN + timedelta(minutes=number * 7 % 50)
    return message(number, **({} if number % 20 == 0 else {"created_at": created}), **fields)


def in_reading_order(number: int) -> tuple[int, int]:
    return (-1 if number % 20 == 0 else number * 7 % 50), number


async def fill(chat: Kit, *, indexed: bool) -> None:
    await chat.messages.insert_many([old(number) for number in range(MANY)])
    if indexed:
        await chat.messages.create_indexes([IndexModel([("created_at", 1), ("_id", 1)])])


@pytest.mark.parametrize("indexed", [True, False])
async def test_the_first_start_reads_the_collection_in_order(chat: Kit, indexed: bool) -> None:
    await fill(chat, indexed=indexed)
    async with chat.tailing(chat.with_tailer(batch_messages=37)), chat.topic() as topic:
        await topic.until(lambda: len(topic.records) >= MANY, "the old messages")
        await chat.following()
        await chat.insert(MANY)
        await topic.until(lambda: f"text {MANY}" in topic.texts, "the stream goes on")
        await topic.until_marked()
        assert len(topic.records) == MANY + 1
        assert {one.message.origin for one in topic.records if one.key != f"i.{MANY}"} == {"backfill"}
        for session in range(5):
            numbers = [
                int(one.key[2:])
                for one in topic.records
                if one.message.session_id == f"s.s{session}" and one.key != f"i.{MANY}"
            ]
            assert numbers == sorted(range(session, MANY, 5), key=in_reading_order)


async def test_what_is_written_during_the_backfill_is_not_lost(chat: Kit) -> None:
    await fill(chat, indexed=True)
    async with chat.tailing(chat.with_tailer(batch_messages=20)), chat.topic() as topic:
        await topic.until(lambda: topic.records, "the backfill is under way")
        for number in range(MANY, MANY + 30):
            await chat.insert(number, created_at=BEGAN)
        await chat.messages.update_one({"_id": 5}, {"$set": {"content": "changed meanwhile"}})
        await chat.messages.delete_one({"_id": 6})
        expected = {f"i.{one['_id']}": one["content"] async for one in chat.messages.find()}
        await topic.until(lambda: topic.last() == expected, "the topic is as the collection")


@pytest.mark.parametrize("indexed", [True, False])
async def test_a_backfill_goes_on_where_it_was_stopped(chat: Kit, indexed: bool) -> None:
    await fill(chat, indexed=indexed)
    slow = chat.with_tailer(batch_messages=1, commit_seconds=0.001)
    async with chat.topic() as topic:
        async with chat.tailing(slow):
            await until(lambda: _read(chat, 40), "some pages are read and saved")
        saved = await chat.position()
        assert (saved["phase"], saved["read"] < MANY) == ("backfill", True)
        await topic.read()
        async with chat.tailing(slow):
            await chat.following()
            await topic.until(lambda: len({one.key for one in topic.records}) == MANY, "all messages")
            await topic.until_marked()
        assert len(topic.records) == MANY, "nothing was read twice"


async def _read(chat: Kit, count: int) -> bool:
    return (await chat.position()).get("read", 0) >= count


async def test_a_backfill_can_be_limited_by_date(chat: Kit) -> None:
    await fill(chat, indexed=True)
    since = BEGAN + timedelta(minutes=25)
    new = {"$or": [{"created_at": {"$gte": since}}, {"created_at": None}]}
    wanted = {f"i.{one['_id']}" async for one in chat.messages.find(new)}
    async with chat.tailing(chat.with_tailer(backfill_since=since.isoformat())), chat.topic() as topic:
        await chat.following()
        await chat.insert(9_999)
        await topic.until(lambda: "text 9999" in topic.texts, "the stream goes on")
        await topic.until_marked()
        assert {one.key for one in topic.records} == {*wanted, "i.9999"}


def dated_by_ids(chat: Kit, **tailer: Any) -> Settings:
    messages = chat.settings.messages.model_copy(update={"created_at": "_id"})
    return chat.with_tailer(**tailer).model_copy(update={"messages": messages})


async def fill_without_times(chat: Kit) -> list[dict[str, Any]]:
    """Messages whose ids were made a minute apart; inserted in another order."""
    made = [BEGAN + timedelta(minutes=number) for number in range(MANY)]
    rows = [message(number, _id=ObjectId.from_datetime(at)) for number, at in enumerate(made)]
    await chat.messages.insert_many(sorted(rows, key=lambda one: one["content"]))
    return rows


async def test_messages_without_a_time_field_are_dated_and_ordered_by_their_ids(chat: Kit) -> None:
    rows = await fill_without_times(chat)
    slow = dated_by_ids(chat, batch_messages=20, commit_seconds=0.001)
    async with chat.topic() as topic:
        async with chat.tailing(slow):
            await until(lambda: _read(chat, 40), "some pages are read and saved")
        async with chat.tailing(dated_by_ids(chat)):
            await chat.following()
            live = await chat.insert(MANY, _id=ObjectId())
            await topic.until(lambda: f"text {MANY}" in topic.texts, "the stream goes on")
            await topic.until_marked()
    of = {one.key: one for one in topic.records}
    assert len(topic.records) == len(of) == MANY + 1, "nothing was read twice"
    for number, row in enumerate(rows):
        record = of[f"o.{row['_id']}"]
        assert record.envelope.time == record.message.created_at == BEGAN + timedelta(minutes=number)
    assert of[f"o.{live['_id']}"].message.created_at == live["_id"].generation_time
    for session in range(5):
        said = [one.message.text for one in topic.records if one.message.session_id == f"s.s{session}"]
        assert said[: MANY // 5] == [f"text {number}" for number in range(session, MANY, 5)]


async def test_a_backfill_can_be_limited_by_the_time_in_the_ids(chat: Kit) -> None:
    rows = await fill_without_times(chat)
    since = BEGAN + timedelta(minutes=25)
    async with chat.tailing(dated_by_ids(chat, backfill_since=since.isoformat())), chat.topic() as topic:
        await chat.following()
        await topic.until_marked()
        assert {one.key for one in topic.records} == {f"o.{row['_id']}" for row in rows[25:]}


FORMS: tuple[Callable[[datetime], Any], ...] = (
    lambda at: at,
    lambda at: at.isoformat(),
    lambda at: at.astimezone(timezone(timedelta(hours=-7))).isoformat(),
    format_datetime,
    lambda at: at.timestamp(),
    lambda at: Int64(at.timestamp() * 1_000),
    lambda at: Decimal128(str(int(at.timestamp() * 1_000_000))),
    lambda at: str(int(at.timestamp() * 1_000)),
    lambda at: Timestamp(int(at.timestamp()), 1),
    ObjectId.from_datetime,
)


@pytest.mark.parametrize("indexed", [True, False])
async def test_a_backfill_is_limited_by_date_whatever_form_the_times_have(chat: Kit, indexed: bool) -> None:
    since = BEGAN + timedelta(minutes=25)
    times = [since + timedelta(minutes=minute) for minute in (-60, -1, 0, 1, 60)]
    rows = [message(n, created_at=form(at)) for n, (form, at) in enumerate(product(FORMS, times))]
    of_ids = [
        message(0, _id=ObjectId(f"{int(at.timestamp()):08x}{n:016x}"), created_at=odd)
        for n, (at, odd) in enumerate(product(times, (None, "?")))
    ]
    await chat.messages.insert_many([*rows, *of_ids, message(9_999, created_at="some day")])
    if indexed:
        await chat.messages.create_index({"created_at": 1, "_id": 1})
    settings = chat.with_tailer(backfill_since=since.isoformat(), batch_messages=7)
    async with chat.tailing(settings), chat.topic() as topic:
        await chat.following()
        await topic.until_marked()
    new = {f"i.{row['_id']}" for row in rows if row["_id"] % len(times) >= 2} | {"i.9999"}
    new |= {f"o.{row['_id']}" for row in of_ids if row["_id"].generation_time >= since}
    assert {one.key for one in topic.records} == new


async def test_a_record_read_in_is_as_old_as_its_message(chat: Kit) -> None:
    await chat.messages.insert_one(message(1, created_at=BEGAN))
    async with chat.tailing(), chat.topic() as topic:
        await topic.until(lambda: topic.records, "the message")
        assert topic.records[0].envelope.time == BEGAN


async def test_the_inbox_that_was_there_before_the_first_start_is_carried(chat: Kit) -> None:
    await chat.inbox.insert_one({"_id": "early", "kind": "form_now", "session_id": "s1"})
    await chat.insert(1)
    async with chat.tailing(), chat.topic() as topic:
        await topic.until(lambda: len(topic.records) == 2, "message and control")
        assert [one.key for one in topic.records] == ["i.1", "s.early"]


async def lost(chat: Kit) -> float:
    return metrics.TAILER_POSITION_LOST._value.get()  # pyright: ignore


async def garbage_token(chat: Kit) -> None:
    await chat.spoil_position("82" + "00" * 8 + "garbage")


async def token_cut_short(chat: Kit) -> None:
    await chat.spoil_position(
        (await chat.position())["token"][:16]
    )  # within its time: a quiet stream's is short


async def token_overwritten(chat: Kit) -> None:
    await chat.spoil_position((await chat.position())["token"][:18] + "beef" * 10)


async def token_of_another_time(chat: Kit) -> None:
    """Older than anything that the server's log still holds."""
    token = (await chat.position())["token"]
    await chat.spoil_position("82" + f"{1_000_000_000:08x}{1:08x}" + token[18:])


async def dropped_and_recreated(chat: Kit) -> None:
    survivors = [one async for one in chat.messages.find({"_id": {"$gte": 3}})]
    await chat.messages.drop()
    await chat.messages.insert_many(survivors)


async def renamed_away(chat: Kit) -> None:
    kept = [one async for one in chat.messages.find({"_id": {"$gte": 3}})]
    await chat.messages.rename("archive")
    await chat.messages.insert_many(kept)


async def renamed_onto(chat: Kit) -> None:
    other = chat.source["restored"]
    await other.insert_many([one async for one in chat.messages.find({"_id": {"$gte": 3}})])
    await other.rename(chat.messages.name, dropTarget=True)


async def database_dropped(chat: Kit) -> None:
    kept = [one async for one in chat.messages.find({"_id": {"$gte": 3}})]
    await chat.mongo.drop_database(chat.source.name)
    await chat.messages.insert_many(kept)


async def merged(chat: Kit, topic: Topic) -> None:
    """The topic holds what the collection does, and what is missing was ended."""
    expected = {f"i.{one['_id']}": one["content"] async for one in chat.messages.find()}
    await topic.until(lambda: topic.last() == expected, "the topic is as the collection")
    await chat.following()
    await chat.insert(77_777)
    await topic.until(lambda: topic.last() == {**expected, "i.77777": "text 77777"}, "the stream goes on")
    await topic.until_marked()


@pytest.mark.parametrize("lose", [garbage_token, token_cut_short, token_overwritten, token_of_another_time])
async def test_a_lost_position_is_merged_against_what_is_known(
    chat: Kit, lose: Callable[[Kit], Awaitable[None]]
) -> None:
    async with chat.topic() as topic:
        async with chat.tailing():
            await chat.following()
            for number in range(8):
                await chat.insert(number)
            await topic.until(lambda: len(topic.records) == 8, "the messages")
        await lose(chat)
        await chat.messages.update_one({"_id": 1}, {"$set": {"content": "changed"}})
        await chat.messages.update_one({"_id": 2}, {"$set": {"session_id": "s-new"}})
        await chat.messages.delete_one({"_id": 3})
        await chat.insert(50)
        before = await lost(chat)
        async with chat.tailing():
            await merged(chat, topic)
        assert await lost(chat) == before + 1
        assert {one.key: one.ended for one in topic.records if one.ended} == {
            "i.2": "moved",
            "i.3": "missing",
        }
        again = [one.key for one in topic.records[8:] if one.value]
        assert sorted(again) == ["i.1", "i.2", "i.50", "i.77777"], "only what is new or changed"


ENDS = [dropped_and_recreated, renamed_away, renamed_onto]


@pytest.mark.parametrize("end", [*ENDS, database_dropped])
@pytest.mark.parametrize("running", [True, False])
async def test_a_collection_that_came_to_an_end_is_merged(
    chat: Kit,
    end: Callable[[Kit], Awaitable[None]],
    running: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written_again = _merging_once_written(monkeypatch)
    elsewhere = chat.settings.model_copy(
        update={"source": chat.settings.source.model_copy(update={"database": chat.source.name + "-app"})}
    )
    app = Kit(elsewhere, chat.mongo)
    async with app.topic() as topic:
        async with app.tailing():
            await app.following()
            for number in range(8):
                await app.insert(number)
            await topic.until(lambda: len(topic.records) == 8, "the messages")
            if running:
                await end(app)
                written_again.set()
                await merged(app, topic)
        if not running:
            await end(app)
            written_again.set()
            async with app.tailing():
                await merged(app, topic)
        ended = {one.key: one.ended for one in topic.records if one.ended}
        assert ended == dict.fromkeys(["i.0", "i.1", "i.2"], "missing")


def _merging_once_written(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """A collection that is empty when the merge begins is refused: it begins once this is set."""
    written, merge = asyncio.Event(), Leadership._merge  # pyright: ignore[reportPrivateUsage]

    async def later(at: Leadership) -> None:
        await written.wait()
        await merge(at)

    monkeypatch.setattr(Leadership, "_merge", later)
    return written


async def test_a_merge_that_is_cut_short_is_done_again(chat: Kit) -> None:
    async with chat.tailing(), chat.topic() as topic:
        await chat.following()
        await chat.messages.insert_many([message(number) for number in range(MANY)])
        await topic.until(lambda: len(topic.records) == MANY, "the messages")
    await garbage_token(chat)
    await chat.messages.update_many({"_id": {"$lt": 100}}, {"$set": {"content": "changed"}})
    await chat.messages.delete_many({"_id": {"$gte": 200}})
    async with chat.tailing(chat.with_tailer(batch_messages=5, commit_seconds=0.001)):
        await until(lambda: _merging(chat), "the merge is under way")
    async with chat.tailing(), chat.topic() as topic:
        await merged(chat, topic)
        assert sum(one.ended == "missing" for one in topic.records) == 100


async def _merging(chat: Kit) -> bool:
    position = await chat.position()
    return position.get("phase") == "merge" and position.get("read", 0) >= 20


@pytest.mark.slow
async def test_a_merge_that_is_killed_leaves_no_file(
    app: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    await app.messages.insert_many([message(number) for number in range(MANY)])
    async with app.tailing(), app.topic() as topic:
        await topic.until(lambda: len(topic.records) == MANY, "the messages")
        await app.following()
    await garbage_token(app)
    await app.messages.update_many({}, {"$set": {"content": "changed"}})
    slow = app.with_tailer(batch_messages=1, commit_seconds=0.001)
    async with tailer_process(slow, tmp_path / "log") as tailer:
        await until(lambda: _merging(app), "the merge is under way")
        tailer.process.kill()
        await tailer.ended()
    assert list(folder.iterdir()) == []
    async with app.tailing(), app.topic() as topic:
        await merged(app, topic)


async def test_the_inbox_is_carried_without_holding_all_of_it(chat: Kit) -> None:
    size, count = 400_000, 400
    for start in range(0, count, 20):
        await chat.inbox.insert_many(
            [{"_id": start + n, "kind": "none", "padding": f"{n}" * size} for n in range(20)]
        )
    whole = (await chat.source.command("collStats", chat.inbox.name))["size"]
    tracemalloc.start()
    try:
        async with chat.tailing():
            await chat.following()
            await until(lambda: _carried(chat), "the inbox is carried")
            _, peak = tracemalloc.get_traced_memory()
            assert len(await chat.letters(count)) == count
    finally:
        tracemalloc.stop()
    assert peak < whole / 2


async def _carried(chat: Kit) -> bool:
    return await chat.inbox.count_documents({}) == 0


async def test_without_a_position_but_with_records_nothing_is_published_twice(chat: Kit) -> None:
    async with chat.topic() as topic:
        async with chat.tailing():
            await chat.following()
            await chat.insert(1)
            await topic.until(lambda: topic.records, "the message")
        settings = chat.settings
        await chat.mongo[settings.mongodb.database][settings.names["positions"]].drop()
        async with chat.tailing():
            await chat.following()
            await chat.insert(2)
            await topic.until(lambda: "text 2" in topic.texts, "the next message")
            await topic.until_marked()
        assert topic.texts == ["text 1", "text 2"]
