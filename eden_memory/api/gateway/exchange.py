"""Handle one chat: ask the provider, relay its answer, and store the question and the answer.

The question is stored while the provider answers. Bytes pass as they come; the answer's text is read on the way, and
both connections end together. One pool of connections leads to the provider; callers share no state. The gateway's
own errors are problem+json that OpenAI's clients can read, too.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx2
import orjson
from pymongo.errors import PyMongoError
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from eden_memory.access.admission_store import Refused, TooMany, Turned
from eden_memory.api.gateway.chat_access import ChatAccess
from eden_memory.api.gateway.chat_formats import ChatFormat, answer_of, said_in
from eden_memory.api.gateway.chat_request import ChatRequest
from eden_memory.api.gateway.remembering import Remembering
from eden_memory.api.gateway.turns import Turns, TurnStore, last_user_text
from eden_memory.errors import EdenError, Invalid, NotFound, describe
from eden_memory.logs import LibraryLogger
from eden_memory.metrics import GATEWAY_ADDED, GATEWAY_CHATS, GATEWAY_TURNS
from eden_memory.mongo.document_fields import text_of
from eden_memory.mongo.ids import typed
from eden_memory.settings import GatewaySettings
from eden_memory.tasks import end, first_of

log = LibraryLogger()
PAUSES = (0.2, 1.0, 5.0, 15.0)
"""Seconds between attempts."""
MOST_WAITING = 10_000
"""Writes that wait for MongoDB; what comes beyond that is lost, and counted."""
NO_USER = "no user named: no user's own memory is shown or formed; send `user`"


Headers = list[tuple[bytes, bytes]]
KEY = b"x-eden-key"
OURS = b"x-eden-"
HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
NOT_SENT = HOP_BY_HOP | {
    b"host",
    b"content-length",
    b"accept-encoding",
    b"cookie",
    b"expect",
    b"origin",
    b"referer",
}
"""Nor what is of the browser and of our own address; the body is measured anew, and is to come uncompressed."""
IDLE_SECONDS = 60.0
CONNECT_SECONDS, SILENCE_SECONDS = 10.0, 600.0
"""For connecting to the provider, and its longest silence."""
MOST_CHATS = 500
"""Concurrent chats; more wait."""
PATHS_KEPT = 100
TITLES = {
    400: "Bad request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not found",
    413: "Too large",
    429: "Too many requests",
    502: "Provider away",
    503: "Not set up",
    504: "Provider silent",
}
NOTICE = b"x-eden-notice"
EVENT = b"data:"
MOST_BYTES = 8_000_000
"""Bytes of an answer that are stored at most."""
Call = Callable[..., AbstractAsyncContextManager[httpx2.Response]]
"""Calls the provider, perhaps with a body; may raise Away."""


class TurnWriter:
    """Writes the turns of one gateway's chats in the background; `close` waits for running writes."""

    def __init__(self, store: TurnStore, clock: Callable[[], datetime]) -> None:
        self._store, self._clock = store, clock
        self._under_way: set[asyncio.Task[None]] = set()

    def asked(self, who: ChatAccess, turns: Turns) -> "asyncio.Task[None] | None":
        """Store the new turns of a request; pass the task to :meth:`answered`, which waits for it."""
        at = self._clock()

        async def write() -> int:
            await self._store.make_session(who.session, who.agent, who.user)
            found = await self._store.put_lost(who, turns.lost, at) if turns.lost is not None else 0
            return found + await self._store.put_new(who, turns.new, turns.history, at)

        return self._start(self._tried(write, len(turns.new)))

    def answered(self, who: ChatAccess, turns: Turns, text: str, before: "asyncio.Task[None] | None") -> None:
        """Store the answer, or its beginning, after the request's turns."""
        answer, at = turns.answer(text), self._clock()
        if answer is None:
            return

        async def in_order() -> None:
            if before is not None:
                await asyncio.wait([before])
            await self._tried(lambda: self._store.put_new(who, [answer], turns.history, at), 1)

        self._start(in_order())

    async def close(self, seconds: float) -> None:
        """Wait for running writes, then cancel the rest."""
        if self._under_way:
            _, left = await asyncio.wait(self._under_way, timeout=seconds)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def idle(self) -> None:
        """Wait until no write is running."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    def _start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None] | None":
        if len(self._under_way) >= MOST_WAITING:
            work.close()
            GATEWAY_TURNS.labels("lost").inc()
            return None
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def _tried(self, write: Callable[[], Awaitable[int]], turns: int) -> None:
        for pause in (*PAUSES, None):
            try:
                stored = await write()
            except PyMongoError as error:
                if pause is None:
                    GATEWAY_TURNS.labels("lost").inc(max(turns, 1))
                    log.error("turns of a chat are lost", turns=turns, reason=type(error).__name__)
                else:
                    await asyncio.sleep(pause)
            except Exception as error:  # noqa: BLE001 - whatever it is, these turns raised it: again, it would be the same
                GATEWAY_TURNS.labels("lost").inc(max(turns, 1))
                log.error("turns of a chat are lost", turns=turns, reason=describe(error))
                return
            else:
                GATEWAY_TURNS.labels("stored").inc(stored)
                GATEWAY_TURNS.labels("known").inc(max(turns - stored, 0))
                return


class Exchange:
    """One chat and its turns; `who` None: the chat has no memory."""

    def __init__(
        self,
        chat: ChatRequest,
        who: ChatAccess | None,
        remembering: Remembering,
        keeping: TurnWriter,
        settings: GatewaySettings,
    ) -> None:
        self.chat, self._who, self._settings = chat, who, settings
        self._remembering, self._keeping = remembering, keeping
        self._turns: Turns | None = None
        self._asked: asyncio.Task[None] | None = None

    async def prepare(self) -> tuple[bytes, bytes | None]:
        """Return the body for the provider, and `memory_hits` as JSON, None if the answer is to have none."""
        who = self._who
        if who is None:
            return await self.chat.computed(self.chat.forwarded), None
        try:
            if who.keeps:
                self._turns = await self.chat.computed(self._new_turns)
            return await self._with_memory(who)
        finally:  # also when the caller has left; it runs while the provider is asked
            if self._turns is not None:
                self._asked = self._keeping.asked(who, self._turns)

    async def _with_memory(self, who: ChatAccess) -> tuple[bytes, bytes | None]:
        chat, settings = self.chat, self._settings
        tells = settings.memory_hits and chat.names_memory and chat.asked.top_k > 0
        if not who.shows or chat.asked.top_k == 0:
            return await chat.computed(chat.forwarded), b"[]" if tells else None
        message = await chat.computed(partial(last_user_text, chat.messages))
        found = await self._remembering.of(who, chat.asked, message, tells=tells)
        body = await chat.computed(partial(chat.forwarded, *found.text))
        return body, found.hits if tells else None

    @property
    def notice(self) -> str | None:
        """Return a notice for the caller about memory in this chat, if there is any."""
        return NO_USER if self._who is not None and self._who.user is None else None

    def ended(self, said: str) -> None:
        """Store the answer; of several choices the next request's history shows the chosen one."""
        if self._who is not None and self._turns is not None and self.chat.choices == 1:
            self._keeping.answered(self._who, self._turns, said, self._asked)

    def _new_turns(self) -> Turns:
        assert self._who is not None
        session = typed(self._who.session, "session")
        return Turns(session, self.chat.messages, anchor=self.chat.anchor)


def to_provider(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return the caller's headers (names in lower case) that are sent to the provider."""
    given = list(headers)
    left = NOT_SENT | _of_connection(given)
    kept = [(name, value) for name, value in given if name not in left and not _ours(name)]
    return [*kept, (b"accept-encoding", b"identity")]


def to_caller(headers: Iterable[tuple[bytes, bytes]], *, changed: bool) -> Headers:
    """Return the provider's headers that are sent to the caller; `changed`: the body's length will differ."""
    given = [(name.lower(), value) for name, value in headers]
    left = HOP_BY_HOP | _of_connection(given) | ({b"content-length"} if changed else frozenset[bytes]())
    return [(name, value) for name, value in given if name not in left]


def _ours(name: bytes) -> bool:
    return name.replace(b"_", b"-").startswith(OURS)


def _of_connection(headers: Headers) -> frozenset[bytes]:
    """Return the names that `Connection` lists, without the header that authenticates the caller."""
    listed = [
        header.strip().lower()
        for name, value in headers
        if name == b"connection"
        for header in value.split(b",")
    ]
    return frozenset(header for header in listed if header != b"authorization")


class Away(EdenError):  # noqa: N818 - a state of the provider
    """The provider cannot be reached, or broke off before its answer; `status` is 502 or 504."""

    def __init__(self, status: int, what: str) -> None:
        super().__init__(what, "Try again; the gateway's log and the provider's status page say more.")
        self.status = status


class Upstream:
    """The provider; create it in the event loop that uses it. It follows no redirects and stores no cookies."""

    def __init__(self, settings: GatewaySettings) -> None:
        """Raise EdenError if no provider is set, or its address is not valid."""
        if settings.upstream is None:
            raise EdenError("no provider is set", "Set EDEN_GATEWAY_UPSTREAM, as https://api.openai.com/v1")
        self._base = httpx2.URL(settings.upstream.rstrip("/"))
        if self._base.scheme not in ("http", "https") or not self._base.host:
            raise EdenError(
                "EDEN_GATEWAY_UPSTREAM is no address", "Give a base URL, as https://api.openai.com/v1"
            )
        limits = httpx2.Limits(
            max_connections=MOST_CHATS,
            max_keepalive_connections=MOST_CHATS,
            keepalive_expiry=IDLE_SECONDS,
        )
        timeout = httpx2.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
        nothing_kept = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
        self._client = httpx2.AsyncClient(limits=limits, timeout=timeout, cookies=nothing_kept)
        self._timeout = {"timeout": timeout.as_dict()}
        self._urls: dict[str, httpx2.URL] = {}

    @asynccontextmanager
    async def asked(
        self, method: str, path: str, query: bytes, headers: Headers, body: bytes | None = None
    ) -> AsyncGenerator[httpx2.Response]:
        """Yield the response with its body unread; the block's end frees the connection. May raise Away."""
        url = self._url(path)
        url = url.copy_with(query=query) if query else url
        request = httpx2.Request(method, url, headers=headers, content=body, extensions=self._timeout)
        try:
            response = await self._client.send(request, stream=True)
        except httpx2.TimeoutException as error:
            raise Away(504, f"the provider did not answer in time ({type(error).__name__})") from None
        except httpx2.HTTPError as error:
            raise Away(
                502, f"the provider at EDEN_GATEWAY_UPSTREAM cannot be reached ({type(error).__name__})"
            ) from None
        try:
            yield response
        finally:
            await response.aclose()

    def _url(self, path: str) -> httpx2.URL:
        """Return the URL of a path; parse it once, since that costs more than the rest of a request."""
        if path not in self._urls:
            if len(self._urls) >= PATHS_KEPT:
                self._urls.clear()
            self._urls[path] = self._base.copy_with(path=self._base.path.rstrip("/") + path)
        return self._urls[path]

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()


def problem(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    """An RFC 9457 problem, with the member `error` as OpenAI words its own."""
    error = {"message": detail, "type": "eden_gateway", "param": None, "code": f"eden_{status}"}
    body = {
        "type": "about:blank",
        "title": TITLES[status],
        "status": status,
        "detail": detail,
        "error": error,
    }
    return Response(orjson.dumps(body), status, headers, "application/problem+json")


def problem_of(error: EdenError) -> Response:
    """Return the response for an error; it does not reveal what the caller may not see."""
    detail = f"{error.what}. {error.hint}" if error.hint else error.what
    if isinstance(error, TooMany):
        return problem(429, detail, {"retry-after": str(max(1, round(error.seconds)))})
    if isinstance(error, Turned):
        return problem(error.status, detail)
    if isinstance(error, Refused | NotFound):
        return problem(403, detail)
    return problem(400 if isinstance(error, Invalid) else 503, detail)


class Relay(Response):
    """The answer to a chat; `started` is time.perf_counter() when the chat arrived."""

    def __init__(self, call: Call, exchange: Exchange, started: float) -> None:
        super().__init__()
        self._call, self._exchange, self._started = call, exchange, started
        self._scope: Scope = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Relay until the provider has answered or the caller has left."""
        self._scope = scope
        chat = asyncio.ensure_future(self._chat(receive, send))
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await first_of(chat, gone)
            if not chat.done():
                GATEWAY_CHATS.labels("left").inc()
        finally:
            await end((chat, gone))
        if not chat.cancelled() and (error := chat.exception()) is not None:
            raise error

    async def _chat(self, receive: Receive, send: Send) -> None:
        body, hits = await self._exchange.prepare()
        GATEWAY_ADDED.observe(time.perf_counter() - self._started)
        try:
            async with self._call(body) as response:
                await self._passed_on(response, hits, send)
        except Away as error:
            GATEWAY_CHATS.labels("away").inc()
            await problem(error.status, error.what)(self._scope, receive, send)

    async def _passed_on(self, response: httpx2.Response, hits: bytes | None, send: Send) -> None:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        plain = response.headers.get("content-encoding", "identity").strip().lower() == "identity"
        if response.status_code == 200 and plain and kind == "text/event-stream":
            await self._streamed(response, hits, send)
        elif response.status_code == 200 and plain and kind.endswith("json"):
            await self._whole(response, hits, send)
        else:
            GATEWAY_CHATS.labels("error" if response.status_code >= 400 else "answered").inc()
            await passed(response, send)

    async def _streamed(self, response: httpx2.Response, hits: bytes | None, send: Send) -> None:
        answer = StreamedAnswer(self._exchange.chat.spoken)
        changes: list[Announced | Echoes] = []
        if (echo := self._exchange.chat.echo(streamed=True)) is not None:
            changes.append(Echoes(echo))
        if hits is not None:
            changes.append(Announced(hits, streamed=True))
        await send(self._start(response, changed=bool(changes)))
        try:
            async for chunk in response.aiter_raw():
                answer.feed(chunk)
                out = chunk
                for change in changes:
                    out = change.put(out)
                if out:
                    await send({"type": "http.response.body", "body": out, "more_body": True})
            left = b""
            for change in changes:
                left = change.put(left) + change.end()
            await send({"type": "http.response.body", "body": left})
            GATEWAY_CHATS.labels("answered").inc()
        except httpx2.HTTPError:
            # Without a last part the server breaks the connection off: the caller sees what we have seen.
            GATEWAY_CHATS.labels("broken").inc()
        finally:
            self._exchange.ended(answer.text)

    def _start(self, response: httpx2.Response, *, changed: bool) -> dict[str, Any]:
        start = _start(response, changed=changed)
        if (notice := self._exchange.notice) is not None:
            start["headers"].append((NOTICE, notice.encode()))
        return start

    async def _whole(self, response: httpx2.Response, hits: bytes | None, send: Send) -> None:
        try:
            body = b"".join([part async for part in response.aiter_raw()])
        except httpx2.HTTPError as error:
            raise Away(502, f"the provider broke off ({type(error).__name__})") from None
        chat = self._exchange.chat
        self._exchange.ended(answer_of(chat.spoken, body))
        if (echo := chat.echo(streamed=False)) is not None:
            body = echo(body)
        if hits is not None:
            announced = Announced(hits, streamed=False)
            body = announced.put(body) + announced.end()
        start = self._start(response, changed=True)
        start["headers"].append((b"content-length", str(len(body)).encode()))
        await send(start)
        await send({"type": "http.response.body", "body": body})
        GATEWAY_CHATS.labels("answered").inc()


class Passed(Response):
    """The provider's answer, unchanged."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self._call = call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            async with self._call() as response:
                await passed(response, send)
        except Away as error:
            await problem(error.status, error.what)(scope, receive, send)


async def passed(response: httpx2.Response, send: Send) -> None:
    """Send a response unchanged: status, headers, bytes."""
    await send(_start(response, changed=False))
    try:
        async for chunk in response.aiter_raw():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    except httpx2.HTTPError:
        return
    await send({"type": "http.response.body", "body": b""})


def _start(response: httpx2.Response, *, changed: bool) -> dict[str, Any]:
    headers = to_caller(response.headers.raw, changed=changed)
    return {"type": "http.response.start", "status": response.status_code, "headers": headers}


async def _gone(receive: Receive) -> None:
    """Return when the caller has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


class StreamedAnswer:
    """Reads the text of an answer from its server-sent events; parses only those that say something."""

    def __init__(self, spoken: ChatFormat) -> None:
        self._spoken = spoken
        self._rest = b""
        self._parts: dict[str, list[str]] = {}
        self._size = 0

    def feed(self, chunk: bytes) -> None:
        """Read more bytes, split anywhere."""
        if b"\n" not in chunk:
            self._rest += chunk
            return
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            if self._spoken.marks in line and line.startswith(EVENT):
                part, text = said_in(self._spoken, line[len(EVENT) :])
                self._size += len(text)
                if text and self._size <= MOST_BYTES:
                    self._parts.setdefault(part, []).append(text)

    @property
    def text(self) -> str:
        """The text so far."""
        return text_of(["".join(texts) for texts in self._parts.values()])


class Echoes:
    """Puts the caller's own instructions back into the events of a stream that repeat them."""

    def __init__(self, put_back: Callable[[bytes], bytes]) -> None:
        self._put_back, self._rest = put_back, b""

    def put(self, chunk: bytes) -> bytes:
        """Return the bytes to send for these: whole lines."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return b"".join(self._line(line) + b"\n" for line in lines)

    def end(self) -> bytes:
        """Return the bytes that were held back until now."""
        return self._line(self._rest)

    def _line(self, line: bytes) -> bytes:
        if b'"instructions"' not in line or not line.startswith(EVENT):
            return line
        start = line.find(b"{")
        return line[:start] + self._put_back(line[start:].rstrip()) + line[len(line.rstrip()) :]


class Announced:
    """Inserts `memory_hits` as the first member of a response's first object; changes nothing else."""

    def __init__(self, hits: bytes, *, streamed: bool) -> None:
        self._member, self._streamed = b'"memory_hits":' + hits, streamed
        self._waiting: bytes | None = b""

    def put(self, chunk: bytes) -> bytes:
        """Return the bytes to send for these; b"" until the beginning of the object is found."""
        if self._waiting is None:
            return chunk
        seen = self._waiting + chunk
        at = _object_in(seen, streamed=self._streamed)
        if at is None and len(seen) < 65_536:
            self._waiting = seen
            return b""
        self._waiting = None
        if at is None or at < 0:
            return seen
        rest = seen[at + 1 :]
        comma = b"" if rest.lstrip().startswith(b"}") else b","
        return seen[: at + 1] + self._member + comma + rest

    def end(self) -> bytes:
        """Return the bytes that were held back until now."""
        left, self._waiting = self._waiting or b"", None
        return left


def _object_in(seen: bytes, *, streamed: bool) -> int | None:
    """Return where the first object begins; -1: there is none; None: more bytes are needed to tell."""
    at = 0
    if streamed:
        at = _first_event(seen)
        if at < 0:
            return None
    rest = seen[at:].lstrip()
    if not rest:
        return None
    start = len(seen) - len(rest)
    if not rest.startswith(b"{"):
        return -1
    return start if rest[1:].strip() else None


def _first_event(seen: bytes) -> int:
    """Return the position behind the first `data:` that begins a line, -1 for none."""
    if seen.startswith(EVENT):
        return len(EVENT)
    found = seen.find(b"\n" + EVENT)
    return -1 if found < 0 else found + 1 + len(EVENT)
