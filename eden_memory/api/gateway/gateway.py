"""The gateway: admits a caller, adds memory to its chat, forwards it, and stores the turns."""

import re
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from eden_memory.access.admission_store import SECRET, ApiKeys, Caller, RequestAdmission, Unknown
from eden_memory.api.gateway.chat_access import ChatAccessRules
from eden_memory.api.gateway.chat_formats import FORMATS, ChatFormat
from eden_memory.api.gateway.chat_request import ChatRequest
from eden_memory.api.gateway.exchange import (
    Call,
    Exchange,
    Headers,
    Passed,
    Relay,
    TurnWriter,
    Upstream,
    problem,
    problem_of,
    to_provider,
)
from eden_memory.api.gateway.remembering import Remembering
from eden_memory.api.gateway.turns import TurnStore
from eden_memory.api.service import Memory
from eden_memory.errors import EdenError, NotAnId
from eden_memory.models.catalogue import shown_model
from eden_memory.operations.reach import SessionReach
from eden_memory.settings import Settings

PATH = b"/v1/models/"
MOST = 512
_NOT_IN_IDS = re.compile(r"[\x00-\x20\x7f%?#\\]|(^|/)\.{0,2}(/|$)")
"""Blanks, controls, what begins another part of an address, a second encoding, segments that lead elsewhere."""
MEGABYTE = 1_000_000
BODY_MEGABYTES = 64.0
"""The largest request."""


def model_path(raw: bytes) -> str:
    """Return the provider's path for a request's path, still encoded; NotAnId if it names no model."""
    _, _, encoded = raw.partition(PATH)
    try:
        path, model = f"/models/{encoded.decode('ascii')}", unquote_to_bytes(encoded).decode()
    except UnicodeDecodeError:
        path = model = ""
    if len(encoded) > MOST or _NOT_IN_IDS.search(model):
        raise NotAnId("this is not the id of a model", "Take one that GET /v1/models lists.")
    return path


def configuration(settings: Settings) -> dict[str, Any]:
    """Return what `/health` shows: no user, and of the provider's address neither credentials nor path."""
    gateway = settings.gateway
    address, embeddings = urlsplit(gateway.upstream or ""), settings.models.embeddings
    shown = gateway.model_dump(mode="json", exclude={"upstream", "single_user"})
    return shown | {
        "upstream": f"{address.scheme}://{address.netloc.rpartition('@')[2]}",
        "single_user": gateway.single_user is not None,
        "search": settings.memory.recalls_by,
        "embedding_model": None if embeddings is None else shown_model(embeddings),
    }


class Gateway:
    """The gateway of a process; it connects with the first chat.

    `admission` is that of the other doors, so that a caller has one limit for all of them.
    """

    def __init__(
        self, memory: Memory, keys: ApiKeys, settings: Settings, admission: RequestAdmission | None = None
    ) -> None:
        self._settings = settings
        self._admission = admission or RequestAdmission(keys, settings.serve)
        turns = TurnStore(memory.source, memory.database, settings)
        reach = SessionReach(memory)
        self._whose = ChatAccessRules(settings.gateway, reach, memory.ids)
        self._remembering = Remembering(memory, settings, memory.clock)
        self.keeping = TurnWriter(turns, memory.clock)
        self._upstream: Upstream | None = None

    async def chat(self, spoken: ChatFormat, request: Request) -> Response:
        """`POST` to the path of one of the chat APIs."""
        started = time.perf_counter()
        try:
            upstream, caller = self._provider(), await self._admitted(request)
            body = await _body(request, BODY_MEGABYTES * MEGABYTE)
            if body is None:
                return problem(413, f"a request has at most {BODY_MEGABYTES:g} MB")
            chat = await ChatRequest.read(body, spoken)
            who = await self._whose.of(caller, chat.asked)
        except EdenError as error:
            return problem_of(error)
        exchange = Exchange(chat, who, self._remembering, self.keeping, self._settings.gateway)
        return Relay(_call(upstream, "POST", spoken.path, request), exchange, started)

    async def models(self, request: Request) -> Response:
        """`GET /v1/models`: the provider's."""
        return await self._passed(request, lambda: "/models")

    async def model(self, request: Request) -> Response:
        """`GET /v1/models/ID`: the provider's."""
        return await self._passed(request, lambda: model_path(request.scope["raw_path"]))

    async def _passed(self, request: Request, path: Callable[[], str]) -> Response:
        try:
            upstream = self._provider()
            await self._admitted(request)
            return Passed(_call(upstream, "GET", path(), request))
        except EdenError as error:
            return problem_of(error)

    async def health(self, request: Request) -> Response:
        """`GET /health`: whether chats are passed on, and the configuration without secrets, for whoever asks."""
        del request
        try:
            self._provider()
        except EdenError as error:
            return problem_of(error)
        return JSONResponse({"status": "ok", "configuration": configuration(self._settings)})

    def prepare(self) -> None:
        """Load certificates before the first chat."""
        if self._settings.gateway.upstream is not None:
            self._provider()

    async def close(self) -> None:
        """Finish running writes, and end the provider's connections."""
        await self.keeping.close(self._settings.run.drain_seconds)
        if self._upstream is not None:
            await self._upstream.close()
            self._upstream = None

    def _provider(self) -> Upstream:
        if self._upstream is None:
            self._upstream = Upstream(self._settings.gateway)
        return self._upstream

    async def _admitted(self, request: Request) -> Caller:
        _demand_no_key(to_provider(request.headers.raw))
        return await self._admission.admit(request.headers.raw, bearer=False)


def _demand_no_key(headers: Headers) -> None:
    """Raise an error for a key of ours in a header that is forwarded to the provider."""
    if any(SECRET.search(value.decode("latin-1")) for _, value in headers):
        raise Unknown("a key of Eden Memory stands where the provider's does", "Send it as X-Eden-Key.")


def _call(upstream: Upstream, method: str, path: str, request: Request) -> Call:
    return partial(
        upstream.asked, method, path, request.scope["query_string"], to_provider(request.headers.raw)
    )


async def _body(request: Request, most: float) -> bytes | None:
    """Return the body; None if it is larger."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            return None
        parts.append(part)
    return b"".join(parts)


def gateway_router(gateway: Gateway) -> APIRouter:
    """Chats, models and `/health`; their forms are the providers': OpenAPI does not list them.

    Running writes finish, and the provider's connections close, with the lifespan of the application that includes
    the router.
    """

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncGenerator[None]:
        del app
        gateway.prepare()
        try:
            yield
        finally:
            await gateway.close()

    router = APIRouter(lifespan=lifespan)
    for spoken in FORMATS:
        router.add_route(
            f"/v1{spoken.path}", partial(gateway.chat, spoken), methods=["POST"], include_in_schema=False
        )
    router.add_route("/health", gateway.health, methods=["GET"], include_in_schema=False)
    router.add_route("/v1/models", gateway.models, methods=["GET"], include_in_schema=False)
    router.add_route("/v1/models/{model:path}", gateway.model, methods=["GET"], include_in_schema=False)
    return router


def gateway_app(memory: Memory, keys: ApiKeys, settings: Settings) -> FastAPI:
    """Return an app with the gateway alone."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.include_router(gateway_router(Gateway(memory, keys, settings)))
    return app
