"""Relay a chat: bytes pass as they come, the answer's text is read, and both connections end together."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

import httpx2
import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from eden_memory.api.gateway.exchange import Exchange
from eden_memory.api.gateway.problems import problem
from eden_memory.api.gateway.upstream import Away, to_caller
from eden_memory.metrics import GATEWAY_ADDED, GATEWAY_CHATS
from eden_memory.mongo.document_fields import text_of
from eden_memory.tasks import end, first_of

NOTICE = b"x-eden-notice"
EVENT = b"data:"
MOST_BYTES = 8_000_000
"""Bytes of an answer that are stored at most."""
Call = Callable[..., AbstractAsyncContextManager[httpx2.Response]]
"""Calls the provider, perhaps with a body; may raise Away."""


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
        answer = StreamedAnswer()
        announced = Announced(hits, streamed=True) if hits is not None else None
        await send(self._start(response, changed=announced is not None))
        try:
            async for chunk in response.aiter_raw():
                answer.feed(chunk)
                out = chunk if announced is None else announced.put(chunk)
                if out:
                    await send({"type": "http.response.body", "body": out, "more_body": True})
            left = b"" if announced is None else announced.end()
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
        self._exchange.ended(answer_of(body))
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
    """Reads the text of an answer from its server-sent events; parses only lines with content."""

    def __init__(self) -> None:
        self._rest = b""
        self._texts: list[str] = []
        self._size = 0

    def feed(self, chunk: bytes) -> None:
        """Read more bytes, split anywhere."""
        if b"\n" not in chunk:
            self._rest += chunk
            return
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            if b'"content"' in line and line.startswith(EVENT):
                self._read(line)

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._texts)

    def _read(self, line: bytes) -> None:
        text = _content(line[len(EVENT) :], "delta")
        self._size += len(text)
        if text and self._size <= MOST_BYTES:
            self._texts.append(text)


def answer_of(body: bytes) -> str:
    """Return the text of a whole response; "" if there is none."""
    return _content(body, "message")


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


def _content(data: bytes, part: str) -> str:
    """Return the content of the first choice; "" if it has none."""
    try:
        choices = cast("list[dict[str, Any]]", orjson.loads(data)["choices"])
        first = next(choice for choice in choices if choice.get("index", 0) == 0)
        return text_of(first[part].get("content"))
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
        return ""
