"""What a killed process had locked in a transaction holds up nobody for the server's minute; the living go on."""

import asyncio
import sys
from typing import Any

import pytest
from pymongo.asynchronous.client_session import AsyncClientSession

from eden_memory.mongo.client import connect
from eden_memory.mongo.transactions import Orphans, Transactions
from eden_memory.settings import Settings
from tests.integration.system.running_system import until

pytestmark = pytest.mark.servers
LEFT_OPEN = """
import asyncio, sys
from eden_memory.mongo.client import connect

async def main(uri, name):
    async with connect(uri) as client:
        async with client.start_session() as session:
            await session.start_transaction()
            await client[name]["sums"].update_one({"_id": 1}, {"$inc": {"of": 100}}, session=session)
            print("open", flush=True)
            await asyncio.sleep(600)

asyncio.run(main(*sys.argv[1:]))
"""


async def added(settings: Settings, uri: str) -> None:
    """Add 1 in a transaction of a client of its own, however long the document is locked."""
    name = settings.mongodb.database
    async with connect(uri) as client:

        async def add(mine: AsyncClientSession) -> None:
            await client[name]["sums"].update_one({"_id": 1}, {"$inc": {"of": 1}}, session=mine)

        await Transactions(client).run(add)


async def test_a_transaction_of_a_killed_process_is_ended_and_not_waited_for(settings: Settings) -> None:
    assert settings.mongodb.uri is not None
    uri, name = settings.mongodb.uri.get_secret_value(), settings.mongodb.database
    async with connect(uri) as client:
        await client[name]["sums"].insert_one({"_id": 1, "of": 0})
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", LEFT_OPEN, uri, name, stdout=asyncio.subprocess.PIPE
        )
        try:
            assert process.stdout is not None
            assert (await process.stdout.readline()).strip() == b"open"
        finally:
            process.kill()
            await process.wait()
        orphans = Orphans(client)

        async def ended() -> bool:  # what the server itself has ended is not found any more
            return await orphans.end() == 1

        await until(ended, "the transaction is found and ended")
        await added(settings, uri)
        found: dict[str, Any] = await client[name]["sums"].find_one({"_id": 1}) or {}
    assert found["of"] == 1


@pytest.mark.slow
async def test_a_transaction_of_a_slow_process_that_lives_is_left_alone(settings: Settings) -> None:
    assert settings.mongodb.uri is not None
    uri, name = settings.mongodb.uri.get_secret_value(), settings.mongodb.database
    async with connect(uri) as slow:
        await slow[name]["sums"].insert_one({"_id": 1, "of": 0})
        async with slow.start_session() as session:
            await session.start_transaction()
            await slow[name]["sums"].update_one({"_id": 1}, {"$inc": {"of": 100}}, session=session)
            adding = asyncio.create_task(added(settings, uri))
            await asyncio.wait({adding}, timeout=8.0)
            assert not adding.done(), "it waits for the document"
            await session.commit_transaction()
            await adding
        found: dict[str, Any] = await slow[name]["sums"].find_one({"_id": 1}) or {}
    assert found["of"] == 101
