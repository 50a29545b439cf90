"""Answers of MongoDB are read without tasks beside, and giving up, time limits and cancelling end a reading."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pymongo import AsyncMongoClient, pool_shared
from pymongo.asynchronous import pool
from pymongo.errors import AutoReconnect, NetworkTimeout

from eden_memory.mongo.client import connect
from eden_memory.mongo.receiving import EndsReading
from eden_memory.settings import Settings

Client = AsyncMongoClient[dict[str, Any]]
SLOW = {"$where": "sleep(10000) || true"}


@asynccontextmanager
async def connected(settings: Settings, options: str = "") -> AsyncGenerator[Client]:
    """A client with one document in the test's database, and one connection."""
    uri = settings.mongodb.uri.get_secret_value() if settings.mongodb.uri else ""
    async with connect(
        settings.mongodb, f"{uri}{'&' if '?' in uri else '/?'}maxPoolSize=1{options}"
    ) as client:
        await client[settings.mongodb.database]["things"].insert_one({"_id": 1})
        yield client


async def test_a_command_starts_no_task(settings: Settings) -> None:
    loop = asyncio.get_running_loop()
    began: list[str] = []

    def noting(loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> "asyncio.Task[Any]":
        began.append(coroutine.__qualname__)
        return asyncio.Task(coroutine, loop=loop, **more)

    async with connected(settings) as client:
        things = client[settings.mongodb.database]["things"]
        loop.set_task_factory(noting)
        try:
            assert await things.find_one({"_id": 1}) == {"_id": 1}
        finally:
            loop.set_task_factory(None)
    assert not [name for name in began if "read" in name or "poll" in name or "write" in name]


async def test_an_answer_that_does_not_come_in_time_is_a_timeout_and_the_next_command_works(
    settings: Settings,
) -> None:
    async with connected(settings, "&socketTimeoutMS=300&retryReads=false") as client:
        things = client[settings.mongodb.database]["things"]
        with pytest.raises(NetworkTimeout):
            await things.find_one(SLOW)
        assert await things.find_one({"_id": 1}) == {"_id": 1}


async def test_who_is_cancelled_while_it_waits_leaves_a_client_that_works(settings: Settings) -> None:
    async with connected(settings) as client:
        things = client[settings.mongodb.database]["things"]
        waiting = asyncio.create_task(things.find_one(SLOW))
        await _until_it_reads(client)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await things.find_one({"_id": 1}) == {"_id": 1}


async def test_a_pool_that_gives_up_ends_what_waits(settings: Settings) -> None:
    async with connected(settings, "&retryReads=false") as client:
        things = client[settings.mongodb.database]["things"]
        waiting = asyncio.create_task(things.find_one(SLOW))
        for context in await _until_it_reads(client):
            context.cancel()
        with pytest.raises(AutoReconnect):
            async with asyncio.timeout(20):
                await waiting
        assert await things.find_one({"_id": 1}) == {"_id": 1}


def test_the_driver_still_has_what_is_replaced(settings: Settings) -> None:
    connect(settings.mongodb, "mongodb://127.0.0.1:1")
    assert pool_shared._CancellationContext is EndsReading  # pyright: ignore[reportPrivateUsage]
    for name in ("async_receive_message", "async_sendall"):
        assert getattr(pool, name).__module__ == "eden_memory.mongo.receiving"


async def _until_it_reads(client: Client) -> list[EndsReading]:
    """What the connection that waits for an answer is given up by; a command's own, not a monitor's."""
    async with asyncio.timeout(20):
        while True:
            contexts = [
                one
                for server in client._topology._servers.values()  # pyright: ignore[reportPrivateUsage]
                for one in server.pool.active_contexts
                if isinstance(one, EndsReading) and one.reading is not None
            ]
            if contexts:
                return contexts
            await asyncio.sleep(0.01)
