"""A time limit and a cancelling end the wait for an answer of MongoDB, and the client goes on."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from pymongo.errors import NetworkTimeout

from eden_memory.mongo.client import connect
from eden_memory.settings import Settings

Client = AsyncMongoClient[dict[str, Any]]
SLOW = {"$where": "sleep(10000) || true"}


@asynccontextmanager
async def connected(settings: Settings, options: str = "") -> AsyncGenerator[Client]:
    """A client with one document in the test's database, and one connection."""
    uri = settings.mongodb.uri.get_secret_value() if settings.mongodb.uri else ""
    async with connect(f"{uri}{'&' if '?' in uri else '/?'}maxPoolSize=1{options}") as client:
        await client[settings.mongodb.database]["things"].insert_one({"_id": 1})
        yield client


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
        await _until_it_waits(client)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await things.find_one({"_id": 1}) == {"_id": 1}


async def _until_it_waits(client: Client) -> None:
    """Until a command has a connection."""
    async with asyncio.timeout(20):
        while True:
            servers = client._topology._servers.values()  # pyright: ignore[reportPrivateUsage]
            if any(server.pool.active_contexts for server in servers):
                break
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)
