"""Canary: how contexts know that a change stream holds more events of a batch, by a private name of PyMongo."""

import asyncio

import pytest

from eden_memory.context.context_feed import _holds_more  # pyright: ignore[reportPrivateUsage]
from tests.integration.context.harness import Kit

pytestmark = pytest.mark.servers


async def test_a_stream_says_whether_it_holds_more_of_the_batch_that_it_has_read(plain: Kit) -> None:
    collection = plain.database["batches"]
    async with await collection.watch() as stream:
        assert await stream.try_next() is None
        assert _holds_more(stream) is False
        await collection.insert_many([{"_id": number} for number in range(3)])
        said: list[tuple[int, bool]] = []
        async with asyncio.timeout(30):
            while len(said) < 3:
                if (event := await stream.try_next()) is not None:
                    said.append((event["documentKey"]["_id"], _holds_more(stream)))
    assert [number for number, _ in said] == [0, 1, 2]
    assert said[0][1] is True
    assert said[-1][1] is False
