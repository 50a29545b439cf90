"""Changes of one transaction share a cluster time: each has a version of its own, wherever the stream is cut."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pymongo.asynchronous.client_session import AsyncClientSession

from eden_memory.mongo.change_stream import token_position, token_time
from eden_memory.mongo.changes import version_of
from tests.integration.source.harness import Kit, Topic, message, until

pytestmark = pytest.mark.servers
SIZES = ((129, 1), (300, 1), (9_000, 2_000), (33_000, 1))
"""Operations and bytes of each: integers in tokens take more bytes from 64, 128 and 32,768 on; 18 MB take several
oplog entries."""


async def in_transaction(chat: Kit, work: Callable[[AsyncClientSession], Awaitable[Any]]) -> None:
    async with chat.mongo.start_session() as session, await session.start_transaction():
        await work(session)


async def swapped(session: AsyncClientSession, chat: Kit) -> None:
    """Message 1 is deleted and inserted again, 2 inserted empty and filled; a change elsewhere lies between."""
    await chat.messages.delete_one({"_id": 1}, session=session)
    await chat.messages.insert_one(message(1, content="again"), session=session)
    await chat.source["elsewhere"].insert_one({}, session=session)
    await chat.messages.insert_one(message(2, content=""), session=session)
    await chat.messages.update_one({"_id": 2}, {"$set": {"content": "filled"}}, session=session)


def told(topic: Topic, begun: int = 0) -> list[tuple[str, str, str | None]]:
    """Version, id and text of what came since, by version: partitions are read in any order."""
    found = [(one, None if one.value is None else one.message.text) for one in topic.records[begun:]]
    named = [
        (one.envelope.entity_version or one.message.version, one.envelope.id, text) for one, text in found
    ]
    return sorted(named)


async def test_a_token_tells_the_position_within_its_transaction(chat: Kit) -> None:
    """Canary: also where an integer takes more bytes, and where a transaction takes several oplog entries."""
    await chat.source.create_collection("elsewhere")
    for count, size in SIZES:
        async with await chat.messages.watch(batch_size=10_000) as stream:

            async def write(session: AsyncClientSession, count: int = count, size: int = size) -> None:
                await chat.source["elsewhere"].insert_one({}, session=session)
                rows = [{"_id": f"{count}-{one}", "pad": "x" * size} for one in range(count)]
                await chat.messages.insert_many(rows, session=session)

            await in_transaction(chat, write)
            found = [await anext(stream) for _ in range(count)]
        tokens = [one["_id"]["_data"] for one in found]
        assert [token_position(one) for one in tokens] == list(range(1, count + 1))
        moment = found[0]["clusterTime"]
        assert {token_time(one) for one in tokens} == {(moment.time, moment.inc)}
        versions = [version_of(*token_time(one), token_position(one)) for one in tokens]
        assert versions == sorted(set(versions))


async def test_messages_inserted_together_have_versions_of_their_own(chat: Kit) -> None:
    async with await chat.messages.watch() as stream:
        await chat.messages.insert_many([message(number) for number in range(3)])
        tokens = [(await anext(stream))["_id"]["_data"] for _ in range(3)]
    assert len({version_of(*token_time(one), token_position(one)) for one in tokens}) == 3


@pytest.mark.parametrize("batch", [1, 1_000])
async def test_changes_of_a_transaction_have_ids_and_versions_of_their_own(chat: Kit, batch: int) -> None:
    await chat.kept_before()
    await chat.source.create_collection("elsewhere")
    async with chat.tailing(chat.with_tailer(batch_messages=batch)), chat.topic() as topic:
        await chat.following()
        await chat.insert(1)
        await in_transaction(chat, lambda session: swapped(session, chat))
        await topic.until(lambda: "filled" in topic.texts, "the transaction")
        await topic.until_marked()
        changes = told(topic)[1:]
        time = changes[0][0].partition(".")[0]
        assert changes == [
            (f"{time}.00000000", f"i.1@{time}.00000000/deleted", None),
            (f"{time}.00000001", f"i.1@{time}.00000001", "again"),
            (f"{time}.00000004", f"i.2@{time}.00000004", "filled"),
        ]
        assert topic.last() == {"i.1": "again", "i.2": "filled"}


async def test_a_transaction_read_again_from_its_middle_gives_the_same_records(chat: Kit) -> None:
    await chat.kept_before()
    await chat.source.create_collection("elsewhere")
    async with chat.tailing():
        await chat.following()
        await chat.insert(1)
    async with await chat.messages.watch() as stream:
        await in_transaction(chat, lambda session: swapped(session, chat))
        tokens = [(await anext(stream))["_id"]["_data"] for _ in range(4)]
    async with chat.topic() as topic:
        async with chat.tailing():
            await topic.until(lambda: "filled" in topic.texts, "the transaction")
        whole = told(topic)[-3:]
        for skipped, token in enumerate(tokens[:2], start=1):
            await topic.read()
            begun = len(topic.records)
            await chat.spoil_position(token)
            async with chat.tailing(chat.with_tailer(batch_messages=1)):
                await until(lambda left=begun + 3 - skipped: _read(topic, left), "what is left of it")
            assert told(topic, begun) == whole[skipped:]


async def _read(topic: Topic, count: int) -> bool:
    await topic.read()
    return len(topic.records) >= count
