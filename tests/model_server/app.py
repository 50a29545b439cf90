"""The server itself: which request, which fault or answer, after what time."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

import orjson

from tests.model_server import wire_anthropic, wire_google, wire_openai, wire_responses
from tests.model_server.config import Config
from tests.model_server.model import Model
from tests.model_server.script import Script, default_script
from tests.model_server.wire import Chat, Embed, Problem, Response, Wire
from tests.model_server.wire_local import local_path

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
GOOGLE = re.compile(r"^/v1\w*/models/([^/]+):(generateContent|embedContent|batchEmbedContents)$")
PATHS: dict[str, tuple[Wire, Callable[[Any], Chat | Embed]]] = {
    "/v1/chat/completions": (wire_openai, wire_openai.read_chat),
    "/v1/responses": (wire_responses, wire_responses.read_response),
    "/v1/messages": (wire_anthropic, wire_anthropic.read_message),
    "/v1/embeddings": (wire_openai, wire_openai.read_embed),
}


class ModelServer(Model):
    """An ASGI application; `config`, `script` and `tally` may be read and set while it runs."""

    def __init__(self, script: Script = default_script, config: Config | None = None) -> None:
        super().__init__(script, config or Config())
        self.last_headers: dict[str, str] = {}
        """Of the newest request."""
        self.last_body = b""

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """One HTTP request."""
        if scope["type"] != "http":
            return
        path, body = scope["path"], await _body(receive)
        self.last_headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        self.last_body = body
        gone = asyncio.ensure_future(receive())
        try:
            response = await self._respond(path, body, gone)
        finally:
            gone.cancel()
        if response is not None:
            await _send(send, response)

    async def _respond(self, path: str, body: bytes, gone: asyncio.Future[Any]) -> Response | None:
        if path.startswith("/control"):
            return _json(self._control(path, body))
        if (listed := local_path(path, self.config, tuple(self.called))) is not None:
            return _json(listed)
        wire, request = _read(path, body)
        if isinstance(request, Problem):
            return wire.problem_response(request)
        return await self.answer(wire, request, gone)

    def _control(self, path: str, body: bytes) -> object:
        if path == "/control/prompts":
            return {name: asdict(one) for name, one in self.tally.prompts.items()}
        changes: dict[str, Any] = orjson.loads(body) if body else {}
        if changes.pop("reset", False):
            self.reset()
        if changes:
            self.change(**changes)
        return {"config": self.config.model_dump(), **self.tally.counts()}


def _read(path: str, body: bytes) -> tuple[Wire, Chat | Embed | Problem]:
    """The request in the words of its provider."""
    google = GOOGLE.match(path)
    wire: Wire = wire_google if google else wire_openai
    try:
        content = orjson.loads(body)
        if google and google[2] == "generateContent":
            return wire, wire_google.read_chat(google[1], content)
        if google:
            return wire, wire_google.read_embed(google[1], content)
        if path in PATHS:
            wire, read = PATHS[path]
            return wire, read(content)
    except (KeyError, TypeError, ValueError) as error:
        return wire, Problem("bad_request", says=f"Test: cannot read the request: {error!r}")
    return wire, Problem("no_model", says=f"Test: no such path: {path}")


def _json(value: object) -> Response:
    return 200, {"content-type": "application/json"}, orjson.dumps(value)


async def _body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def _send(send: Send, response: Response) -> None:
    status, headers, body = response
    length = {"content-length": str(len(body))}
    named = [(name.encode(), value.encode()) for name, value in {**length, **headers}.items()]
    await send({"type": "http.response.start", "status": status, "headers": named})
    if "x-cut" not in headers:
        await send({"type": "http.response.body", "body": body})
