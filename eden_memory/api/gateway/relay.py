"""A chat between caller and provider: bytes pass as they come, and end on both sides when one of them leaves."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx2
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from eden_memory.api.gateway.exchange import Exchange
from eden_memory.api.gateway.problems import problem
from eden_memory.api.gateway.response_text import Announced, StreamedAnswer, answer_of
from eden_memory.api.gateway.upstream import Away, to_caller
from eden_memory.metrics import GATEWAY_ADDED, GATEWAY_CHATS
from eden_memory.task_ending import end, first_of

NOTICE = b"x-eden-notice"
Call = Callable[..., AbstractAsyncContextManager[httpx2.Response]]
"""Asks the provider, with a body where there is one; may raise Away."""


class Relay(Response):
    """`started`: time.perf_counter() when the chat arrived."""

    def __init__(self, call: Call, exchange: Exchange, started: float) -> None:
        super().__init__()
        self._call, self._exchange, self._started = call, exchange, started
        self._scope: Scope = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The provider's connection ends with the caller's."""
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
    """Whatever the provider answers, as it is."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self._call = call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass it on."""
        try:
            async with self._call() as response:
                await passed(response, send)
        except Away as error:
            await problem(error.status, error.what)(scope, receive, send)


async def passed(response: httpx2.Response, send: Send) -> None:
    """A response as it is: status, headers, bytes."""
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
    """Returns when the caller has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
