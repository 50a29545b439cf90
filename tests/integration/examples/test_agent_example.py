"""The example of an agent framework, run against a provider of the test suite: context, tool and stored turns."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from tests.integration.context.harness import fact, kit_for
from tests.integration.mcp.stored import remember
from tests.integration.mcp.written import ROOT
from tests.model_server.chat_upstream import Reply, chat_upstream

pytestmark = pytest.mark.servers
BOAT = "The boat Gaivota is due on 9 March."
QUESTION = "When is the boat due?"


@pytest.mark.slow
async def test_an_agent_reads_its_context_searches_and_leaves_its_turns(settings: Settings) -> None:
    replies = iter((Reply((), tool_calls=[_search()]), Reply(("On ", "9 March."))))
    async with kit_for(settings) as kit, chat_upstream() as provider:
        provider.reply = partial(_next, replies)
        rui = Scope.of_user("s.default", "s.rui")
        await kit.authors("c1", "rui")
        await remember(kit, rui, BOAT)
        await kit.put(rui, active_facts=1, recent_facts=(fact("Rui owns the boat."),), revision=2)
        said = await _run(settings, provider.openai_url, "rui", "c1", QUESTION)
        stored = await kit.database["messages"].find({"session_id": "c1"}).sort("created_at").to_list()
    first, second = [str(one.messages) for one in provider.came[-2:]]
    assert said.splitlines()[-1] == "On 9 March."
    assert "Rui owns the boat" in first
    assert "Gaivota" in second
    assert [(one["role"], one["content"]) for one in stored] == [
        ("user", QUESTION),
        ("assistant", "On 9 March."),
    ]


def _next(replies: Iterator[Reply], body: Any) -> Reply:
    return next(replies)


def _search() -> dict[str, Any]:
    arguments = json.dumps({"queries": ["boat due"]})
    return {"id": "call-1", "type": "function", "function": {"name": "search_facts", "arguments": arguments}}


async def _run(settings: Settings, provider: str, *arguments: str) -> str:
    assert settings.mongodb.uri is not None
    environment = {
        **os.environ,
        "EDEN_MONGODB_URI": settings.mongodb.uri.get_secret_value(),
        "EDEN_MONGODB_DATABASE": settings.mongodb.database,
        "OPENAI_API_KEY": "sk-test",
        "OPENAI_BASE_URL": provider,
    }
    command: Sequence[str] = (
        sys.executable,
        "-W",
        "error",
        "examples/agents/pydantic_ai_agent.py",
        *arguments,
    )
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()
