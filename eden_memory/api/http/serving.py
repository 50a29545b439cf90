"""The doors as one process: what `eden serve` runs until a signal."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import uvicorn
from fastapi import FastAPI
from pymongo.errors import ConnectionFailure

from eden_memory.access.admission import Admission, is_loopback
from eden_memory.access.callers import ApiKeys
from eden_memory.api.http.app import create_app
from eden_memory.api.http.doors import Doors
from eden_memory.api.memory import Memory
from eden_memory.app.system import namespace_of
from eden_memory.errors import EdenError
from eden_memory.logs import LibraryLogger
from eden_memory.settings import Settings
from eden_memory.stages.health_server import HealthServer, SignalLessServer
from eden_memory.stages.process import Part, Process, Signals, State

log = LibraryLogger("eden.http")
BACKLOG = 2_048
ACCOUNT_SECONDS = 2.0
"""MongoDB has so long to say, before requests are taken, that it does not accept the account."""


class DoorsServer:
    """A part that answers requests; when it stops, event streams end and what is under way is finished."""

    name = "doors"

    def __init__(self, app: FastAPI, memory: Memory) -> None:
        settings = memory.settings
        self._doors: Doors = app.state.doors
        self._memory, self._where = memory, f"http://{settings.serve.host}:{settings.serve.port}"
        self.server = SignalLessServer(
            uvicorn.Config(
                app,
                host=settings.serve.host,
                port=settings.serve.port,
                log_config=None,
                access_log=False,
                lifespan="on",
                proxy_headers=False,
                server_header=False,
                backlog=BACKLOG,
                timeout_graceful_shutdown=int(settings.run.drain_seconds),
            ),
            "EDEN_SERVE_PORT",
        )

    async def run(self) -> None:
        """Until `stop`."""
        log.info("listens", where=self._where)
        await self.server.serve()

    def stop(self) -> None:
        """No new connections; those that are open end with their answer."""
        self._doors.stopping.set()
        self.server.should_exit = True

    def state(self) -> State:
        """Ready while what changes is heard of: MongoDB is there."""
        live = self._memory.contexts.cache.live
        return State(live, self._where if live else "the change stream of MongoDB is not open")


async def serve(settings: Settings, signals: Signals) -> None:
    """Run the doors until a signal."""
    async with serving(settings) as parts:
        await Process(parts, signals, settings.run.drain_seconds + 5).run()


@asynccontextmanager
async def serving(settings: Settings, **options: Any) -> AsyncGenerator[list[Part]]:
    """The parts, ready to run. EdenError where whoever reaches the port could not be told apart."""
    async with Memory(settings, **options) as memory:
        keys = ApiKeys(memory.database, settings.names, memory.clock)
        await demand_account(keys)
        await demand_key(settings, keys)
        parts: list[Part] = []
        app = create_app(memory, keys, Admission(keys, settings.serve), lambda: parts)
        parts.append(DoorsServer(app, memory))
        if settings.http.port is not None:
            doors = tuple(parts)
            where = settings.http.host, settings.http.port
            parts.append(HealthServer(lambda: doors, *where, namespace_of(settings)))
        yield parts


async def demand_account(keys: ApiKeys) -> None:
    """OperationFailure, if MongoDB does not let this program in or read; one that is away is waited for later."""
    with suppress(ConnectionFailure, TimeoutError):
        async with asyncio.timeout(ACCOUNT_SECONDS):
            await keys.any_valid()


async def demand_key(settings: Settings, keys: ApiKeys) -> None:
    """EdenError, if others than this machine can reach the port and there is no key that lets anybody in."""
    if is_loopback(settings.serve.host) or await keys.any_valid():
        return
    raise EdenError(
        f"{settings.serve.host} can be reached by others, and there is no API key",
        "Make one (eden keys create NAME), or leave EDEN_SERVE_HOST at 127.0.0.1.",
    )
