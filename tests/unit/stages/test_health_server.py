"""What the health pages take for granted of uvicorn."""

import asyncio
import inspect

import uvicorn

from eden_memory.stages.health_server import SignalLessServer


def test_uvicorn_takes_signals_in_the_one_place_that_is_replaced() -> None:
    assert SignalLessServer.capture_signals is not uvicorn.Server.capture_signals
    assert "with self.capture_signals():" in inspect.getsource(uvicorn.Server.serve)
    elsewhere = [name for name in ("main_loop", "startup", "shutdown") if "signal." in _source(name)]
    assert not elsewhere


async def test_it_ends_at_once_when_it_is_told_to() -> None:
    server = SignalLessServer(uvicorn.Config("app"), "EDEN_HTTP_PORT")
    server.servers = []
    loops = asyncio.create_task(server.main_loop())
    await asyncio.sleep(0)
    assert not loops.done()
    server.should_exit = True
    for _ in range(5):
        await asyncio.sleep(0)
    assert loops.done()
    assert server.should_exit


def test_uvicorn_does_nothing_more_in_the_loop_that_is_replaced() -> None:
    calls = [line.strip() for line in _source("main_loop").splitlines() if "await" in line]
    assert calls == ["should_exit = await self.on_tick(counter)", "await asyncio.sleep(0.1)", calls[0]]


def _source(name: str) -> str:
    return inspect.getsource(getattr(uvicorn.Server, name))
