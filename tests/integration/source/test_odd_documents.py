"""Whatever a single document is, it is recorded or becomes one dead letter, and stops nothing else."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from bson import encode  # pyright: ignore[reportUnknownVariableType]
from bson.raw_bson import RawBSONDocument
from pymongo import IndexModel

from eden_memory.mongo.lenient_decoding import PLAIN, decode_document
from tests.integration.source.harness import Kit, Topic, message, until
from tests.integration.source.odd_documents import (
    VALUES,
    WITHOUT_TEXT,
    deep_token,
    large,
    odd_fields,
    odd_ids,
    raw,
    written,
)

pytestmark = pytest.mark.servers
GOOD, ODD = range(1, 50), 1_000
LAST = 999
LONG = 120.0


async def fill(chat: Kit) -> list[tuple[int, str, str]]:
    """Write odd documents with good ones among them; return what the server took of those with plain ids."""
    odd = list(odd_fields(ODD))
    documents: list[Any] = [document for *_, document in odd]
    for number in GOOD:
        documents.insert(number * 6, raw(message(number)))
    taken = await written(chat.messages, documents)
    ids = {documents[index]["_id"] for index in taken}
    assert ids >= set(GOOD)
    assert len(ids) > len(documents) * 0.9, "the server takes nearly all of it"
    await written(chat.messages, list(odd_ids()))
    await written(chat.messages, list(large()))
    return [(number, field, name) for number, field, name, _ in odd if number in ids]


def dead_key(number: int) -> str:
    return f'{{"_id": {number}}}'


def outcomes(field: str, name: str, records: int, letters: int) -> int:
    """Count what came of a message; an index has a document once for each of its times, so it may be read again."""
    several = field == "created_at" and isinstance(VALUES[name], list)
    return (min(records, 1) if several else records) + letters


def expected(field: str, name: str) -> int:
    """Return 1; 0 for a message without text."""
    return 0 if field == "content" and (name in WITHOUT_TEXT or not VALUES[name]) else 1


async def accounted(chat: Kit, topic: Topic, odd: Sequence[tuple[int, str, str]]) -> None:
    """Wait for a last good message; then each odd one is recorded or has a dead letter, and only one."""
    await topic.until(lambda: f"text {LAST}" in topic.texts, "a later good message", LONG)
    await topic.until_marked()
    recorded = Counter(one.key for one in topic.records if one.value is not None)
    assert [number for number in GOOD if recorded[f"i.{number}"] != 1] == []

    async def letters() -> Counter[str]:
        return Counter((one.key or b"").decode() for one in await chat.letters())

    async def wrong() -> list[tuple[int, str, str]]:
        refused = await letters()
        return [
            (number, field, name)
            for number, field, name in odd
            if outcomes(field, name, recorded[f"i.{number}"], refused[dead_key(number)])
            != expected(field, name)
        ]

    with suppress(AssertionError):
        await until(lambda: _is_empty(wrong), "every message is accounted for")
    assert await wrong() == []
    assert set((await letters()).values()) == {1}
    assert all(one.value is None and len(one.key or b"") <= 1_024 for one in await chat.letters())


async def _is_empty(found: Callable[[], Awaitable[Sequence[Any]]]) -> bool:
    return not await found()


async def test_odd_documents_of_the_stream_cost_themselves_alone(chat: Kit) -> None:
    async with chat.topic() as topic:
        async with chat.tailing():
            await chat.following()
            odd = await fill(chat)
            await chat.insert(LAST)
            await accounted(chat, topic, odd)
        before = len(topic.records), await chat.letters()
        async with chat.tailing():
            await chat.following()
            await topic.until_marked()
        assert (len(topic.records), await chat.letters()) == before, "a restart meets none of them again"


@pytest.mark.slow
async def test_odd_documents_are_edited_and_deleted_beside_others(chat: Kit) -> None:
    await chat.kept_before()
    async with chat.topic() as topic, chat.tailing():
        await chat.following()
        await fill(chat)
        await chat.messages.update_many({}, {"$set": {"role": "assistant"}})
        await chat.messages.update_many({}, {"$set": {"session_id": "elsewhere"}})
        await chat.messages.delete_many({"_id": {"$nin": list(GOOD)}})
        await chat.insert(LAST)
        await topic.until(lambda: f"text {LAST}" in topic.texts, "a later good message", LONG)
        await topic.until_marked()
        assert topic.last() == {f"i.{number}": f"text {number}" for number in (*GOOD, LAST)}


@pytest.mark.parametrize("indexed", [True, pytest.param(False, marks=pytest.mark.slow)])
async def test_odd_documents_are_read_in_and_merged_beside_others(chat: Kit, indexed: bool) -> None:
    odd = await fill(chat)
    if indexed:
        await chat.messages.create_indexes([IndexModel([("created_at", 1), ("_id", 1)])])
    async with chat.topic() as topic:
        async with chat.tailing(chat.with_tailer(batch_messages=7)):
            await chat.following()
            await chat.insert(LAST)
            await accounted(chat, topic, odd)
        before = len(topic.records)
        await chat.spoil_position("82")
        await chat.insert(LAST + 1_000_000)
        async with chat.tailing(chat.with_tailer(batch_messages=7)):
            await topic.until(lambda: f"text {LAST + 1_000_000}" in topic.texts, "it is merged", LONG)
            await chat.following()
            await topic.until_marked()
        assert [one.key for one in topic.records[before:]] == [f"i.{LAST + 1_000_000}"]


async def test_a_text_that_breaks_a_detector_costs_itself_alone(chat: Kit) -> None:
    async with chat.topic() as topic, chat.tailing():
        await chat.following()
        await chat.insert(1, content=deep_token())
        await chat.insert(2)
        await topic.until(lambda: "text 2" in topic.texts, "a later good message")
        await topic.until_marked()
        recorded = sorted(one.key for one in topic.records)
        refused = [(one.key or b"").decode() for one in await chat.letters()]
        assert (recorded, refused) in ((["i.2"], [dead_key(1)]), (["i.1", "i.2"], []))


def as_the_driver_writes_it(value: Any) -> bool:
    """Tell whether a value is the same once it was read and written again."""
    spelled = raw({"_id": value}).raw
    return encode(decode_document(spelled), codec_options=PLAIN) == spelled


async def test_odd_requests_cost_themselves_alone(chat: Kit) -> None:
    request = {"kind": "added_text", "session_id": "s0", "text": "remember this"}
    documents: list[RawBSONDocument] = [
        raw({"_id": f"{field} {name}", **request, field: value})
        for field in ("kind", "session_id", "text", "user_id", "created_at", "_id")
        for name, value in VALUES.items()
        if field != "_id" or as_the_driver_writes_it(value)  # others stay: no query of the driver names them
    ]
    await written(chat.inbox, documents)
    async with chat.topic() as topic, chat.tailing():
        await chat.following()
        await written(chat.inbox, documents)
        await chat.inbox.insert_one({"_id": "last", **request, "text": "the last"})
        await topic.until(lambda: "the last" in topic.texts, "a later good request", LONG)
        await until(lambda: _empty(chat), "the inbox is erased", 30)


async def _empty(chat: Kit) -> bool:
    return await chat.inbox.count_documents({}) == 0
