"""Why tests were failed by an "unclosed transport" now and then: PyMongo loses a connection when it is cancelled."""

import asyncio
import gc
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from pymongo.asynchronous import pool as pools
from pymongo.network_layer import PyMongoProtocol

from tests.left_transports import ignored_transports
from tests.servers import TestServers

pytestmark = pytest.mark.servers


async def test_pymongo_leaves_a_transport_when_connecting_is_cancelled_at_the_lock(
    servers: TestServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once this fails PyMongo has mended it: tests/left_transports.py can go."""
    module: Any = pools
    make, made = module._configured_protocol_interface, asyncio.get_running_loop().create_future()

    async with AsyncMongoClient[Any](servers.mongodb_uri) as client:
        await client.admin.command("ping")
        topology: Any = client._topology  # pyright: ignore[reportPrivateUsage]
        pool = next(iter(topology._servers.values())).pool

        async def made_while_locked(*given: Any) -> Any:
            interface = await make(*given)
            await pool.lock.acquire()
            made.set_result(interface)
            return interface

        monkeypatch.setattr(pools, "_configured_protocol_interface", made_while_locked)
        connecting = asyncio.create_task(pool.connect())
        interface = await asyncio.wait_for(made, 60)
        await asyncio.sleep(0)
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)
        pool.lock.release()
        transport = interface.conn[0]
        assert not transport.is_closing(), "nobody has it, and it is open"
        transport.abort()


@pytest.mark.parametrize(("protocol", "of_pymongo"), [(PyMongoProtocol, True), (asyncio.Protocol, False)])
async def test_only_what_pymongo_leaves_is_ignored(
    protocol: type[asyncio.Protocol], of_pymongo: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(_: Any, writer: asyncio.StreamWriter) -> None:
        writer.close()

    reported: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", reported.append)
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with ignored_transports() as left:
            connected = await asyncio.get_running_loop().create_connection(protocol, "127.0.0.1", port)
            transport: Any = connected[0]
            name = f" fd={transport._sock_fd} "
            transport._loop._remove_reader(transport._sock_fd)  # the loop does not hold it any more
            del connected, transport
            gc.collect()
    assert any(name in str(one) for one in left) == of_pymongo
    assert any(name in str(one.exc_value) for one in reported) != of_pymongo
