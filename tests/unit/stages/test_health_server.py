"""What the health pages take for granted of uvicorn."""

import inspect

import uvicorn

from eden_memory.stages.health_server import SignalLessServer


def test_uvicorn_takes_signals_in_the_one_place_that_is_replaced() -> None:
    assert SignalLessServer.capture_signals is not uvicorn.Server.capture_signals
    assert "with self.capture_signals():" in inspect.getsource(uvicorn.Server.serve)
    elsewhere = [name for name in ("main_loop", "startup", "shutdown") if "signal." in _source(name)]
    assert not elsewhere


def _source(name: str) -> str:
    return inspect.getsource(getattr(uvicorn.Server, name))
