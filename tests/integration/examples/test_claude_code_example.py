"""The example for Claude Code, without Claude Code: its server is started and its hooks are run as its files say."""

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from tests.integration.context.harness import fact, kit_for
from tests.integration.mcp.stored import remember
from tests.integration.mcp.written import ROOT

pytestmark = pytest.mark.servers
FOLDER = ROOT / "examples/claude-code"
BOAT = "The boat Gaivota is due on 9 March."
VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


def expanded(value: Any, environment: dict[str, str]) -> Any:
    """A configuration with its variables, as Claude Code reads `.mcp.json`: `${NAME}` and `${NAME:-default}`."""
    if isinstance(value, str):
        return VARIABLE.sub(lambda found: environment.get(found[1]) or found[2] or "", value)
    if isinstance(value, list):
        return [expanded(one, environment) for one in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        return {name: expanded(one, environment) for name, one in value.items()}  # pyright: ignore[reportUnknownVariableType]
    return value


def environment_of(settings: Settings) -> dict[str, str]:
    assert settings.mongodb.uri is not None
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "USER": "rui",
        "EDEN_MONGODB_URI": settings.mongodb.uri.get_secret_value(),
        "EDEN_MONGODB_DATABASE": settings.mongodb.database,
    }


async def hooked(event: str, environment: dict[str, str], folder: Path, **fields: Any) -> None:
    """Run the hooks of an event, with its JSON on standard input: what they print, a model would read."""
    configured = json.loads((FOLDER / ".claude/settings.json").read_text())["hooks"][event]
    for hook in (hook for group in configured for hook in group["hooks"]):
        assert hook["type"] == "command"
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            "sh", "-c", hook["command"], cwd=folder, env=environment, stdin=pipe, stdout=pipe, stderr=pipe
        )
        given = {"hook_event_name": event, "session_id": "s1", "cwd": str(folder), **fields}
        out, err = await process.communicate(json.dumps(given).encode())
        assert process.returncode == 0, err.decode()
        assert out == b""


@pytest.mark.slow
async def test_it_reads_memory_at_the_start_searches_and_leaves_its_turns(
    settings: Settings, tmp_path: Path
) -> None:
    environment = environment_of(settings)
    async with kit_for(settings) as kit:
        rui = Scope.of_user("s.default", "s.rui")
        await remember(kit, rui, BOAT)
        await kit.put(rui, active_facts=1, recent_facts=(fact("Rui owns the boat."),), revision=2)

        servers = json.loads((FOLDER / ".mcp.json").read_text())["mcpServers"]
        (name,) = servers
        server = expanded(servers[name], environment)
        started = StdioServerParameters(
            command=server["command"],
            args=server["args"],
            env={**environment, **server["env"]},
            cwd=tmp_path,
        )
        async with Client(started) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            context = await client.call_tool("get_memory_context", {})
            found = await client.call_tool("search_facts", {"queries": ["boat due"], "search_type": "text"})
        assert "Rui owns the boat" in str(context.structured_content)
        assert "Gaivota" in str(found.structured_content)
        permissions = json.loads((FOLDER / ".claude/settings.json").read_text())["permissions"]
        named = {rule.removeprefix(f"mcp__{name}__") for rules in permissions.values() for rule in rules}
        told = set(re.findall(r"`(\w+_\w+|forget)`", (FOLDER / "CLAUDE.md").read_text()))
        assert named | told <= tools

        await hooked("UserPromptSubmit", environment, tmp_path, prompt="When is the boat due?")
        await hooked("Stop", environment, tmp_path, last_assistant_message="On 9 March.")
        rows = await kit.database["messages"].find({"session_id": "s1"}).sort("created_at").to_list()
    assert [(row["role"], row["content"]) for row in rows] == [
        ("user", "When is the boat due?"),
        ("assistant", "On 9 March."),
    ]
