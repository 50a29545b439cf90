"""The lease of a process that was killed is free at once for one of the same machine; that of a living one is not."""

import asyncio
import sys
from asyncio.subprocess import PIPE

import pytest

from eden_memory.mongo.client import connect
from eden_memory.mongo.leases import MongoLease
from eden_memory.settings import Settings

pytestmark = pytest.mark.servers
HOUR = 3_600.0
HOLDS = """
import asyncio, sys
from pymongo import AsyncMongoClient
from eden_memory.mongo.leases import MongoLease

async def hold(uri, database):
    async with AsyncMongoClient(uri) as client, MongoLease(client[database]["leases"], "tailer", 3600).held():
        print("held", flush=True)
        await asyncio.sleep(3600)

asyncio.run(hold(*sys.argv[1:]))
"""


async def test_the_lease_of_a_killed_process_is_taken_over_at_once(settings: Settings) -> None:
    assert settings.mongodb.uri is not None
    uri, database = settings.mongodb.uri.get_secret_value(), settings.mongodb.database
    holder = await asyncio.create_subprocess_exec(sys.executable, "-c", HOLDS, uri, database, stdout=PIPE)
    try:
        async with connect(uri) as client:
            lease = MongoLease(client[database]["leases"], "tailer", HOUR)
            assert holder.stdout is not None
            assert await holder.stdout.readline() == b"held\n"
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1.0), lease.held():
                    pass
            holder.kill()
            await holder.wait()
            async with asyncio.timeout(HOUR / 60), lease.held() as epoch:
                assert epoch == 2
    finally:
        if holder.returncode is None:
            holder.kill()
            await holder.wait()
