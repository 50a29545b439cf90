"""`python -m tests.model_server`: the server as a process of its own; its address is the first line it prints."""

import argparse
import asyncio
import importlib
import json

import uvicorn

from tests.model_server.app import ModelServer
from tests.model_server.config import Config
from tests.model_server.script import Script, default_script
from tests.model_server.serving import bound_socket, uvicorn_config


def main() -> None:
    """Serve until a signal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--config", default="{}", help="JSON of config.Config")
    parser.add_argument("--script", help="package.module:function")
    given = parser.parse_args()
    app = ModelServer(_script(given.script), Config.model_validate(json.loads(given.config)))
    with bound_socket(given.port) as bound:
        print(f"http://127.0.0.1:{bound.getsockname()[1]}", flush=True)  # noqa: T201
        server = uvicorn.Server(uvicorn_config(app))
        with asyncio.Runner(loop_factory=_loop) as runner:
            runner.run(server.serve([bound]))


def _script(named: str | None) -> Script:
    if named is None:
        return default_script
    module, _, function = named.partition(":")
    return getattr(importlib.import_module(module), function)


def _loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


if __name__ == "__main__":
    main()
