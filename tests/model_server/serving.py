"""Ways to run the model server: in this event loop, or as a process of its own."""

import asyncio
import json
import socket
import subprocess
import sys
import urllib.request
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from tests.model_server.app import ModelServer
from tests.model_server.config import Config
from tests.model_server.script import Script, default_script

ROOT = Path(__file__).parents[2]


class Serving(ModelServer):
    """A model server with its address."""

    url: str = ""

    @property
    def openai_url(self) -> str:
        """For OpenAI's SDK."""
        return f"{self.url}/v1"

    @property
    def anthropic_url(self) -> str:
        """For Anthropic's SDK."""
        return self.url

    @property
    def google_url(self) -> str:
        """For google-genai."""
        return self.url


class Quiet(uvicorn.Server):
    """Leaves the process's signals alone."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Nothing captured."""
        yield


def uvicorn_config(app: ModelServer) -> uvicorn.Config:
    """Cheap: no logs, no lifespan, connections kept."""
    return uvicorn.Config(
        app,
        log_level="critical",
        access_log=False,
        lifespan="off",
        timeout_keep_alive=75,
        timeout_graceful_shutdown=0,
        server_header=False,
        date_header=False,
        ws="none",
        loop="none",
    )


def bound_socket(port: int = 0) -> socket.socket:
    """A listening socket on loopback; without its protocol named, asyncio would leave Nagle's delay on (40 ms)."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", port))
    bound.listen(1_024)
    return bound


@asynccontextmanager
async def serving(script: Script = default_script, **config: Any) -> AsyncGenerator[Serving]:
    """The server in this event loop for the block."""
    app = Serving(script, Config.model_validate(config))
    with bound_socket() as bound:
        app.url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        server = Quiet(uvicorn_config(app))
        task = asyncio.create_task(server.serve([bound]))
        await until(lambda: server.started or task.done())
        try:
            yield app
        finally:
            server.should_exit = server.force_exit = True
            await task


async def until(holds: Callable[[], bool]) -> None:
    """Let the event loop run until something holds."""
    while not holds():  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0)


@dataclass(frozen=True, slots=True)
class ModelServerProcess:
    """A model server in another process."""

    url: str
    pid: int

    @property
    def openai_url(self) -> str:
        """For OpenAI's SDK."""
        return f"{self.url}/v1"

    @property
    def google_url(self) -> str:
        """For google-genai."""
        return self.url

    def change(self, **fields: Any) -> dict[str, Any]:
        """Set fields of the configuration; `reset=True` sets the counts to zero."""
        return self._get("/control", json.dumps(fields).encode())

    def counts(self) -> dict[str, Any]:
        """Counts and configuration."""
        return self._get("/control")

    def prompts(self) -> dict[str, dict[str, Any]]:
        """What became of each prompt, by its hash."""
        return self._get("/control/prompts")

    def _get(self, path: str, body: bytes | None = None) -> dict[str, Any]:
        with urllib.request.urlopen(self.url + path, body, timeout=30) as response:
            return json.load(response)


@contextmanager
def model_server_process(
    script: str | None = None, port: int = 0, **config: Any
) -> Generator[ModelServerProcess]:
    """The server as a process of its own for the block; `script` is `package.module:function`."""
    more = ["--script", script] if script else []
    command = [
        sys.executable,
        "-m",
        "tests.model_server",
        "--port",
        str(port),
        "--config",
        json.dumps(config),
    ]
    with subprocess.Popen([*command, *more], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield ModelServerProcess(process.stdout.readline().strip(), process.pid)
        finally:
            process.terminate()
            process.wait(10)
