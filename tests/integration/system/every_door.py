"""Everything that every door says to one asker: Python, HTTP, MCP, gateway, commands, and the ready contexts."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from eden_memory.errors import EdenError
from eden_memory.mongo.client import connect
from eden_memory.mongo.ids import encode_id
from eden_memory.search.search_requests import SearchedKind
from tests.integration.context.harness import Kit
from tests.integration.doors.conftest import doors_of
from tests.integration.gateway.gateway_kit import Chats, behind, chats_of
from tests.integration.system.commands import EDEN, eden, environment
from tests.integration.system.running_system import AGENT, System
from tests.model_server.chat_upstream import chat_upstream

BOTH: tuple[SearchedKind, ...] = ("facts", "reflections")

HEADERS = {
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
    "mcp-protocol-version": "2025-06-18",
    "x-eden-agent": AGENT,
}
Said = dict[str, str]


@dataclass(frozen=True)
class Asker:
    """Who asks; None: outside of any session, nobody in particular."""

    session: str | None = None
    user: str | None = None

    @property
    def named(self) -> dict[str, Any]:
        return {"session": self.session, "user": self.user}

    @property
    def given(self) -> dict[str, str]:
        return {name: one for name, one in self.named.items() if one is not None}

    @property
    def options(self) -> list[str]:
        return [part for name, one in self.given.items() for part in (f"--{name}", one)]


@dataclass(frozen=True)
class EveryDoor:
    """The doors of one running system."""

    running: System
    http: httpx2.AsyncClient
    chats: Chats

    async def quick(self, asker: Asker, questions: Sequence[str]) -> Said:
        """What all doors say but the commands, which are processes of their own."""
        said = await self._python(asker, questions)
        return (
            said
            | await self._http(asker, questions)
            | await self._mcp(asker, questions)
            | await self._gateway(asker, questions)
        )

    async def slow(self, asker: Asker, questions: Sequence[str]) -> Said:
        """What the commands say, and `eden mcp` over standard input and output."""
        lists = [[name, *asker.options] for name in ("facts", "reflections", "blobs", "stats")]
        searched = [part for kind in BOTH for part in ("--kind", kind)]
        commands = [
            ["search", *questions[:3], *searched, *asker.options],
            *lists,
            ["facts", "--active", "all", *asker.options],
        ]
        if asker.session is not None and asker.user is not None:
            commands.append(["context", asker.session, "--user", asker.user])
        said = {f"eden {' '.join(one)}": await self._command(*one) for one in commands}
        return said | {"mcp stdio": await self._stdio(asker, questions)}

    async def open_to_requests(self, asker: Asker, questions: Sequence[str]) -> Said:
        """What HTTP, MCP and the gateway say."""
        said = await self._http(asker, questions) | await self._mcp(asker, questions)
        return said | await self._gateway(asker, questions)

    async def ready(self, asker: Asker) -> str:
        """A context as docs/context.md says to read it: by one find, whoever the others in the session are."""
        found = self.running.memory("contexts").find(_where(asker))
        return str([row["xml"] async for row in found])

    async def _python(self, asker: Asker, questions: Sequence[str]) -> Said:
        service, named = self.running.service, asker.named
        said: dict[str, Any] = {
            "facts": await service.list_facts(**named, active=None, limit=200),
            "reflections": await service.list_reflections(**named),
            "blobs": await service.list_blobs(**named),
            "search": await service.search_facts(questions[:3], **named, top_k=100, include_retired=True),
            "words": await service.search_facts(questions[:3], **named, top_k=100, search_type="text"),
            "reflected": await service.search_facts(questions[:3], **named, top_k=100, kinds=BOTH),
        }
        said["unformed"] = (await service.explain_search(questions[:3], **named)).unformed
        for question in questions:
            said[f"context, {question}"] = await service.get_memory_context(**named, message=question)
        ids = [row["_id"] async for row in self.running.memory("facts").find({}, {"_id": 1})]
        for one in ids:
            try:
                said[f"history {one}"] = await service.history(one, **named)
            except EdenError:
                continue
        return {f"python {name}": str(one) for name, one in said.items()}

    async def _http(self, asker: Asker, questions: Sequence[str]) -> Said:
        said: Said = {}
        for name in ("context", "facts?active=all&", "reflections", "blobs", "stats"):
            path = name if name.endswith("&") else f"{name}?"
            url = f"/v1/agents/{AGENT}/{path}{'&'.join(f'{k}={v}' for k, v in asker.given.items())}"
            said[f"http {name}"] = (await self.http.get(url)).text
        body = {"queries": list(questions[:3]), "top_k": 100, "include_retired": True, "kinds": BOTH}
        found = await self.http.post(f"/v1/agents/{AGENT}/search", json=body, params=asker.given)
        return said | {"http search": found.text}

    async def _mcp(self, asker: Asker, questions: Sequence[str]) -> Said:
        said: Said = {}
        for name, arguments in _tools(questions):
            asked = {"name": name, "arguments": {**arguments, **asker.given}}
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": asked}
            answer = await self.http.post("/mcp", content=json.dumps(body), headers=HEADERS)
            said[f"mcp {name} {arguments}"] = answer.text
        return said

    async def _gateway(self, asker: Asker, questions: Sequence[str]) -> Said:
        """The prompts that the provider was sent; only where a session is named, which its turns are stored in."""
        if asker.session is None or asker.user is None:
            return {}
        await self.chats.say("Hello.", user=asker.user, memory_id=asker.session)
        return {"gateway": str([one for one in self.chats.came.messages if one["role"] != "user"])}

    async def _command(self, *arguments: str) -> str:
        agent = () if arguments[0] == "context" else ("--agent", AGENT)
        return await eden(self.running.settings, *arguments, *agent)

    async def _stdio(self, asker: Asker, questions: Sequence[str]) -> str:
        command, *arguments = EDEN
        server = StdioServerParameters(
            command=command,
            args=[*arguments, "mcp", "--agent", AGENT],
            env=environment(self.running.settings),
        )
        async with Client(server) as client:
            answers = [
                await client.call_tool(name, {**given, **asker.given}) for name, given in _tools(questions)
            ]
        return str(answers)


def _tools(questions: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    return [
        ("get_memory_context", {"message": questions[0]}),
        (
            "search_facts",
            {"queries": list(questions[:3]), "top_k": 50, "include_retired": True, "kinds": BOTH},
        ),
        ("list_facts", {"limit": 200, "active": "all"}),
        ("list_reflections", {"limit": 200}),
        ("list_blobs", {}),
    ]


def _where(asker: Asker) -> dict[str, Any]:
    named = {f"{name}_id": encode_id(one) for name, one in asker.given.items()}
    return named | {"users": encode_id(asker.user)} if asker.user is not None else named


@asynccontextmanager
async def every_door(running: System) -> AsyncGenerator[EveryDoor]:
    """A server, a gateway and a provider before it, in this event loop."""
    settings = running.settings
    assert settings.mongodb.uri is not None
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connect(settings.mongodb.uri.get_secret_value()))
        doors = await stack.enter_async_context(doors_of(Kit(settings, client)))
        upstream = await stack.enter_async_context(chat_upstream())
        placed = behind(settings, upstream.openai_url, AGENT)
        yield EveryDoor(running, doors.http, await stack.enter_async_context(chats_of(placed, upstream)))
