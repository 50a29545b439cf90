"""README's four ways in and docs/mcp.md's configurations, run as written against a real `eden serve`."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import httpx2
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from eden_memory.access.admission_store import ApiKeys
from eden_memory.local import server as ports
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from tests.integration.context.harness import Kit, fact, kit_for
from tests.integration.mcp.stored import remember
from tests.integration.mcp.written import ROOT, blocks, eden_serve
from tests.model_server.chat_upstream import ChatUpstream, chat_upstream
from tests.names import NAMES

pytestmark = [pytest.mark.servers, pytest.mark.slow]
BOAT = "The boat Gaivota is due on 9 March."
WRITTEN_PORT = "8787"
"""The port of the pages; a free one takes its place."""


class Written:
    """One `eden serve`, and what runs beside it: the same settings, the repository as its folder."""

    def __init__(self, environment: Mapping[str, str], port: str, kit: Kit) -> None:
        self.environment, self.port, self.kit = environment, port, kit

    async def run(self, *command: str) -> str:
        """What a command prints; it has to succeed."""
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=ROOT,
            env=self.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return out.decode()

    def here(self, text: str) -> str:
        """A page's text with the port that is served here."""
        return text.replace(WRITTEN_PORT, self.port)


@pytest.fixture(scope="module")
async def provider() -> AsyncGenerator[ChatUpstream]:
    async with chat_upstream() as upstream:
        yield upstream


@pytest.fixture
async def written(settings: Settings, provider: ChatUpstream) -> AsyncGenerator[Written]:
    async with kit_for(settings) as kit:
        rui = Scope.of_user("s.default", "s.rui")
        await kit.authors("c1", "rui")
        await remember(kit, rui, BOAT)
        await kit.put(rui, active_facts=1, recent_facts=(fact(BOAT),), revision=2)
        port = str(ports.choose())
        environment = _environment(settings, provider, port)
        async with eden_serve(environment, port):
            yield Written(environment, port, kit)


def _environment(settings: Settings, provider: ChatUpstream, port: str) -> dict[str, str]:
    assert settings.mongodb.uri is not None
    return {
        **os.environ,
        "EDEN_MONGODB_URI": settings.mongodb.uri.get_secret_value(),
        "EDEN_MONGODB_DATABASE": settings.mongodb.database,
        "EDEN_SERVE_PORT": port,
        "EDEN_GATEWAY_UPSTREAM": provider.openai_url,
        "EDEN_GATEWAY_MEMORY_SECONDS": "60",
        "OPENAI_API_KEY": "sk-of-the-caller",
    }


async def test_the_four_ways_in_run_as_the_readme_writes_them(
    written: Written, provider: ChatUpstream
) -> None:
    python, http, mcp, gateway = [
        (language, written.here(text)) for language, text in blocks("README.md", "Four ways in")
    ]
    assert [python[0], http[0], mcp[0], gateway[0]] == ["python", "sh", "json", "python"]
    by_python, by_http, by_gateway = await asyncio.gather(
        written.run(sys.executable, "-c", python[1]),
        written.run("bash", "-euc", http[1]),
        written.run(sys.executable, "-c", gateway[1]),
    )
    assert by_python.count("Gaivota") == 2  # found, and in the context
    assert by_http.count("Gaivota") == 2
    assert by_gateway.strip()
    asked = provider.came[-1]
    assert asked.header("authorization") == "Bearer sk-of-the-caller"
    assert "Gaivota" in str(asked.messages)
    server = json.loads(mcp[1])["mcpServers"]["eden-memory"]
    async with Client(_stdio(written, server)) as client:
        listed = await client.call_tool("list_facts", {"session": "c1"})
    assert "Gaivota" in str(listed.structured_content)


async def test_the_hosts_configurations_reach_their_user_and_nobody_else(written: Written) -> None:
    mara = Scope.of_user("s.default", "s.mara")
    await written.kit.put(mara, recent_facts=(fact("Mara sails on Sundays."),))
    keys = ApiKeys(written.kit.database, NAMES)
    secret, _ = await keys.create("desk", agents=["s.default"], users=["s.mara"])
    stdio, http = [
        json.loads(
            written.here(text).replace("${workspaceFolder}", str(ROOT)).replace("${input:eden_key}", secret)
        )
        for language, text in blocks("docs/mcp.md", "VS Code")
        if language == "json"
    ]
    async with Client(_stdio(written, *stdio["servers"].values())) as client:
        await _only_mara(client)
    (server,) = http["servers"].values()
    assert server["type"] == "http"
    async with httpx2.AsyncClient(headers=server["headers"]) as given:
        transport: Any = streamable_http_client(server["url"], http_client=given)
        async with Client(transport) as client:
            await _only_mara(client)


async def _only_mara(client: Client) -> None:
    assert "search_facts" in {tool.name for tool in (await client.list_tools()).tools}
    context = await client.call_tool("get_memory_context", {})
    assert "sails on Sundays" in str(context.structured_content)
    refused = await client.call_tool("get_memory_context", {"user": "rui", "session": "c1"})
    assert refused.is_error
    assert "Gaivota" not in str(refused)


def _stdio(written: Written, server: Any) -> StdioServerParameters:
    given = {name: value for name, value in written.environment.items() if name.startswith("EDEN_")}
    return StdioServerParameters(
        command=server["command"],
        args=server["args"],
        env={**given, **server.get("env", {})},
        cwd=ROOT,
    )
