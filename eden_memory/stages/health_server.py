"""`/livez`, `/readyz` and `/metrics` of a process."""

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from socket import socket
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from eden_memory.errors import EdenError
from eden_memory.stages.labelled_metrics import metrics_page
from eden_memory.stages.process import ProcessPart, State


class SignalLessServer(uvicorn.Server):
    """The process handles signals itself (canary: tests/unit/stages/test_health_server.py)."""

    def __init__(self, config: uvicorn.Config, name: str) -> None:
        super().__init__(config)
        self.hint = f"End what listens there, or choose another port: {name}."

    def capture_signals(self) -> Any:
        """Not uvicorn's business here."""
        return nullcontext()

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Listen; EdenError where the port cannot be had (uvicorn would end the process)."""
        try:
            await super().startup(sockets)
        except SystemExit as end:
            if not isinstance(end.__context__, OSError):
                raise
            where, why = f"{self.config.host}:{self.config.port}", os.strerror(end.__context__.errno or 0)
            raise EdenError(f"cannot listen on {where}: {why}", self.hint) from None


class HealthServer:
    """A part that tells how the other parts stand."""

    name = "http"

    def __init__(
        self, parts: Callable[[], Sequence[ProcessPart]], host: str, port: int, namespace: str
    ) -> None:
        config = uvicorn.Config(
            health_app(parts, namespace), host=host, port=port, log_config=None, lifespan="off"
        )
        self._server = SignalLessServer(config, "EDEN_HTTP_PORT")
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


def health_app(parts: Callable[[], Sequence[ProcessPart]], namespace: str = "") -> Starlette:
    """The three pages; every figure of `/metrics` is labelled with the namespace."""

    async def live(request: Request) -> PlainTextResponse:
        del request
        return PlainTextResponse("alive\n")

    async def ready(request: Request) -> JSONResponse:
        del request
        states = {part.name: part.state() for part in parts()}
        good = all(state.ready for state in states.values())
        body = {name: {"ready": state.ready, "what": state.what} for name, state in states.items()}
        return JSONResponse({"ready": good, "parts": body}, status_code=200 if good else 503)

    async def metrics(request: Request) -> Response:
        return metrics_page(namespace, request)

    return Starlette(
        routes=[Route("/livez", live), Route("/readyz", ready), Route("/metrics", metrics)],
    )
