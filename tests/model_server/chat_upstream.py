"""A chat provider, for tests of what stands between it and a client: streams, tool calls, errors, endings.

`python -m tests.model_server.chat_upstream` serves it in a process of its own (its address is the first line it
prints): the model `tokens-N` says N tokens, `tokens-N-S` one every S milliseconds.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
import uvicorn

from tests.model_server.serving import Quiet, bound_socket, until, uvicorn_config
from tests.model_server.upstream_formats import answered

Body = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Came:
    """A request as it arrived."""

    method: str
    path: str
    query: bytes
    headers: list[tuple[bytes, bytes]]
    raw: bytes

    @property
    def body(self) -> Body:
        return orjson.loads(self.raw)

    @property
    def messages(self) -> list[Body]:
        return self.body["messages"]

    def header(self, name: str) -> str | None:
        return dict(self.headers).get(name.encode(), b"").decode() or None


@dataclass(slots=True)
class Reply:
    """What is answered: tokens, or a whole response."""

    tokens: Sequence[str] = ("Hello", " there", ".")
    tool_calls: list[Body] = field(default_factory=list[Body])
    more: Body = field(default_factory=dict[str, Any])
    """Further members of the completion and of each chunk."""
    gate: asyncio.Event | None = None
    """Waited for behind the first token."""
    pause: float = 0.0
    """Seconds before each further token."""
    cut: bool = False
    """Breaks off before the last token."""
    response: tuple[int, list[tuple[bytes, bytes]], bytes] | None = None


def named(body: Body) -> Reply:
    """By the model's name; any other says hello."""
    kind, _, rest = str(body.get("model")).partition("-")
    if kind != "tokens":
        return Reply()
    number, _, milliseconds = rest.partition("-")
    return Reply([f" word{n}" for n in range(int(number))], pause=float(milliseconds or 0) / 1e3)


class ChatUpstream:
    """An ASGI application; `reply` may be set while it runs."""

    def __init__(self, reply: Callable[[Body], Reply] = named) -> None:
        self.reply, self.url = reply, ""
        self.came: list[Came] = []
        self.left = 0
        """Clients that went away before their answer's end."""

    @property
    def openai_url(self) -> str:
        return f"{self.url}/v1"

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        raw = await _body(receive)
        came = Came(scope["method"], scope["path"], scope["query_string"], scope["headers"], raw)
        self.came.append(came)
        answer = asyncio.ensure_future(self._answer(came, send))
        gone = asyncio.ensure_future(receive())
        await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            self.left += 1
        answer.cancel()
        gone.cancel()
        await asyncio.gather(answer, gone, return_exceptions=True)

    async def _answer(self, came: Came, send: Send) -> None:
        if came.path == "/v1/models":
            listed = {
                "object": "list",
                "data": [{"id": "m", "object": "model", "created": 0, "owned_by": "t"}],
            }
            return await _whole(send, 200, [], orjson.dumps(listed))
        if came.path.startswith("/v1/models/"):
            one = {
                "id": came.path.removeprefix("/v1/models/"),
                "object": "model",
                "created": 0,
                "owned_by": "t",
            }
            return await _whole(send, 200, [], orjson.dumps(one))
        body = came.body
        reply = self.reply(body)
        if reply.response is not None:
            return await _whole(send, *reply.response)
        if came.path in ("/v1/responses", "/v1/messages"):
            return await _of_other_api(send, came, reply, len(self.came))
        if body.get("stream"):
            return await _streamed(send, body, reply)
        return await _completed(send, body, reply)


async def _completed(send: Send, body: Body, reply: Reply) -> None:
    if reply.gate is not None:
        await reply.gate.wait()
    message: Body = {"role": "assistant", "content": "".join(reply.tokens) or None}
    if reply.tool_calls:
        message["tool_calls"] = reply.tool_calls
    choices = [
        {"index": n, "message": message, "finish_reason": "stop", "logprobs": None}
        for n in range(body.get("n") or 1)
    ]
    whole = {"id": "c-1", "object": "chat.completion", "created": 1, "model": "m-1", "choices": choices}
    content = orjson.dumps({**whole, **reply.more})
    if reply.cut:
        await send(_start(200, [(b"content-length", str(len(content)).encode())]))
        await send({"type": "http.response.body", "body": content[:10], "more_body": True})
        return
    await _whole(send, 200, [], content)


async def _of_other_api(send: Send, came: Came, reply: Reply, number: int) -> None:
    """Of several tool calls (`call_id`, `name`, `arguments`) the first."""
    call = reply.tool_calls[0] if reply.tool_calls else None
    whole, events = answered(came.path, came.body, list(reply.tokens), number, call)
    if not came.body.get("stream"):
        await _whole(send, 200, [], orjson.dumps({**whole, **reply.more}))
        return
    await send(_start(200, [], b"text/event-stream; charset=utf-8"))
    for event in events:
        data = b"event: " + event["type"].encode() + b"\ndata: " + orjson.dumps(event) + b"\n\n"
        await send({"type": "http.response.body", "body": data, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _streamed(send: Send, body: Body, reply: Reply) -> None:
    await send(_start(200, [(b"x-request-id", b"r-1")], b"text/event-stream; charset=utf-8"))
    for place, token in enumerate(reply.tokens):
        if place and reply.gate is not None:
            await reply.gate.wait()
        if place and reply.pause:
            await asyncio.sleep(reply.pause)
        if reply.cut and place == len(reply.tokens) - 1:
            return
        await _event(send, _chunk({"content": token} | ({"role": "assistant"} if not place else {}), reply))
    if reply.tool_calls:
        await _event(send, _chunk({"tool_calls": [{"index": 0, **reply.tool_calls[0]}]}, reply))
    await _event(send, _chunk({}, reply, "stop"))
    if "stream_options" in body and body["stream_options"]["include_usage"]:
        usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
        await _event(send, orjson.dumps({**CHUNK, "choices": [], "usage": usage}))
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


CHUNK = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "m-1"}


def _chunk(delta: Body, reply: Reply, ending: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": ending}
    return orjson.dumps({**CHUNK, "choices": [choice], **reply.more})


async def _event(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": b"data: " + data + b"\n\n", "more_body": True})


async def _whole(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    await send(_start(status, [*headers, (b"content-length", str(len(body)).encode())]))
    await send({"type": "http.response.body", "body": body})


def _start(status: int, headers: list[tuple[bytes, bytes]], kind: bytes = b"application/json") -> Body:
    typed = (
        headers
        if any(name == b"content-type" for name, _ in headers)
        else [(b"content-type", kind), *headers]
    )
    return {"type": "http.response.start", "status": status, "headers": typed}


async def _body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


@asynccontextmanager
async def chat_upstream() -> AsyncGenerator[ChatUpstream]:
    """It, in this event loop for the block."""
    app = ChatUpstream()
    async with served(app) as url:
        app.url = url
        yield app


@asynccontextmanager
async def served(app: Any, *, lifespan: bool = False) -> AsyncGenerator[str]:
    """An ASGI application in this event loop for the block; its address."""
    with bound_socket() as bound:
        config = uvicorn_config(app)
        config.lifespan = "on" if lifespan else "off"
        server = Quiet(config)
        task = asyncio.create_task(server.serve([bound]))
        await until(lambda: server.started or task.done())
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            server.should_exit, server.force_exit = True, not lifespan
            await task


def main() -> None:
    """Serve until a signal."""
    with bound_socket() as bound:
        print(f"http://127.0.0.1:{bound.getsockname()[1]}", flush=True)  # noqa: T201
        server = uvicorn.Server(uvicorn_config(ChatUpstream()))  # pyright: ignore[reportArgumentType]
        asyncio.run(server.serve([bound]))


if __name__ == "__main__":
    main()
