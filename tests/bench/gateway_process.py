"""`python -m tests.bench.gateway_process`: the gateway alone, told by the environment; its address comes first."""

import asyncio

import uvicorn
import uvloop

from eden_memory.access.admission_store import ApiKeys
from eden_memory.api.gateway.gateway import gateway_app
from eden_memory.api.service import Memory
from eden_memory.settings import Settings
from tests.model_server.serving import bound_socket


async def serve() -> None:
    """Until a signal."""
    settings = Settings()
    async with Memory(settings) as memory:
        await memory.ready()
        app = gateway_app(memory, ApiKeys(memory.database, settings.names), settings)
        with bound_socket() as bound:
            print(f"http://127.0.0.1:{bound.getsockname()[1]}", flush=True)  # noqa: T201
            config = uvicorn.Config(app, log_level="warning", access_log=False)
            await uvicorn.Server(config).serve([bound])


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())
