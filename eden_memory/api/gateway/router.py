"""The gateway's paths, for the application that serves all doors or for one of its own."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI

from eden_memory.access.admission import Admission
from eden_memory.access.callers import ApiKeys
from eden_memory.api.gateway.gateway import Gateway
from eden_memory.api.memory import Memory
from eden_memory.settings import Settings


def gateway_router(
    memory: Memory, keys: ApiKeys, settings: Settings, admission: Admission | None = None
) -> APIRouter:
    """`POST /v1/chat/completions` and `GET /v1/models` (`/ID`); their form is OpenAI's: OpenAPI does not list them.

    `admission` is that of the other doors, so that a caller's limit is one for all. What is under way is stored, and
    the provider's connections end, with the lifespan of the application that includes the router.
    """
    return routed(Gateway(memory, keys, settings, admission))


def routed(gateway: Gateway) -> APIRouter:
    """The paths of a gateway, which is closed with the application's lifespan."""

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncGenerator[None]:
        del app
        gateway.prepare()
        try:
            yield
        finally:
            await gateway.close()

    router = APIRouter(lifespan=lifespan)
    router.add_route("/v1/chat/completions", gateway.chat, methods=["POST"], include_in_schema=False)
    router.add_route("/v1/models", gateway.models, methods=["GET"], include_in_schema=False)
    router.add_route("/v1/models/{model:path}", gateway.model, methods=["GET"], include_in_schema=False)
    return router


def gateway_app(memory: Memory, keys: ApiKeys, settings: Settings) -> FastAPI:
    """The gateway alone."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.include_router(gateway_router(memory, keys, settings))
    return app
