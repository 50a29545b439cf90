"""The gateway: a caller is let in, its chat is given memory and passed on, and what is said is stored beside it."""

import time
from collections.abc import Callable
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from eden_memory.access.admission import Admission, Unknown, secret_of
from eden_memory.access.callers import SECRET, ApiKeys, Caller
from eden_memory.api.gateway.chat_request import ChatRequest
from eden_memory.api.gateway.exchange import Exchange
from eden_memory.api.gateway.headers import Headers, to_provider
from eden_memory.api.gateway.keeping import Keeping
from eden_memory.api.gateway.model_ids import model_path
from eden_memory.api.gateway.problems import problem, problem_of
from eden_memory.api.gateway.relay import Call, Passed, Relay
from eden_memory.api.gateway.remembering import Remembering
from eden_memory.api.gateway.turn_store import TurnStore
from eden_memory.api.gateway.upstream import Upstream
from eden_memory.api.gateway.who import Whose
from eden_memory.api.memory import Memory
from eden_memory.api.reach import SessionReach
from eden_memory.errors import EdenError
from eden_memory.settings import Settings

MEGABYTE = 1_000_000


class Gateway:
    """One for each process and event loop; nothing is connected before the first chat."""

    def __init__(
        self, memory: Memory, keys: ApiKeys, settings: Settings, admission: Admission | None = None
    ) -> None:
        self._settings = settings
        self._admission = admission or Admission(keys, settings.serve)
        turns = TurnStore(memory.source, memory.database, settings)
        reach = SessionReach(memory)
        self._whose = Whose(settings.gateway, reach)
        self._remembering = Remembering(memory, settings, memory.clock)
        self.keeping = Keeping(turns, memory.clock)
        self._upstream: Upstream | None = None

    async def chat(self, request: Request) -> Response:
        """`POST /v1/chat/completions`."""
        started = time.perf_counter()
        try:
            upstream, caller = self._provider(), await self._admitted(request)
            body = await _body(request, self._settings.gateway.body_megabytes * MEGABYTE)
            if body is None:
                return problem(413, f"a request has at most {self._settings.gateway.body_megabytes:g} MB")
            chat = ChatRequest(body)
            who = await self._whose.of(caller, chat.asked)
        except EdenError as error:
            return problem_of(error)
        exchange = Exchange(chat, who, self._remembering, self.keeping, self._settings.gateway)
        return Relay(_call(upstream, "POST", "/chat/completions", request), exchange, started)

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

    def prepare(self) -> None:
        """Have certificates and connections at hand before the first chat."""
        if self._settings.gateway.upstream is not None:
            self._provider()

    async def close(self) -> None:
        """Store what is under way, end the provider's connections."""
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
        secret = secret_of(request.headers.raw, bearer=False)
        return await self._admission.admit(secret, request.headers.get("host"), request.headers.get("origin"))


def _demand_no_key(headers: Headers) -> None:
    """A key of ours in a header that goes on would be given to the provider."""
    if any(SECRET.search(value.decode("latin-1")) for _, value in headers):
        raise Unknown("a key of Eden Memory stands where the provider's does", "Send it as X-Eden-Key.")


def _call(upstream: Upstream, method: str, path: str, request: Request) -> Call:
    return partial(
        upstream.asked, method, path, request.scope["query_string"], to_provider(request.headers.raw)
    )


async def _body(request: Request, most: float) -> bytes | None:
    """None if it is larger."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            return None
        parts.append(part)
    return b"".join(parts)
