"""`/livez`, `/readyz` and `/metrics` of a process."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import uvicorn
from prometheus_client import make_asgi_app  # pyright: ignore[reportUnknownVariableType]
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Mount, Route

from eden_memory.runtime.process import Part, State


class _Server(uvicorn.Server):
    """The process handles signals itself (canary: tests/unit/runtime/test_process_http.py)."""

    def capture_signals(self) -> Any:
        """Not uvicorn's business here."""
        return nullcontext()


class HealthServer:
    """A part that tells how the other parts stand."""

    name = "http"

    def __init__(self, parts: Sequence[Part], host: str, port: int) -> None:
        config = uvicorn.Config(
            health_app(lambda: parts), host=host, port=port, log_config=None, lifespan="off"
        )
        self._server = _Server(config)
        self._where = f"{host}:{port}"

    async def run(self) -> None:
        """Until `stop`."""
        await self._server.serve()

    def stop(self) -> None:
        """Close the port."""
        self._server.should_exit = True

    def state(self) -> State:
        """It listens, or is about to."""
        return State(True, self._where)


def health_app(parts: Callable[[], Sequence[Part]]) -> Starlette:
    """The three pages."""

    async def live(request: Request) -> PlainTextResponse:
        del request
        return PlainTextResponse("alive\n")

    async def ready(request: Request) -> JSONResponse:
        del request
        states = {part.name: part.state() for part in parts()}
        good = all(state.ready for state in states.values())
        body = {name: {"ready": state.ready, "what": state.what} for name, state in states.items()}
        return JSONResponse({"ready": good, "parts": body}, status_code=200 if good else 503)

    metrics: Any = make_asgi_app()  # pyright: ignore[reportUnknownVariableType]
    return Starlette(routes=[Route("/livez", live), Route("/readyz", ready), Mount("/metrics", metrics)])
