"""A text added to a session that the application has no document of: every door answers the same."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest

from tests.integration.doors.conftest import Doors
from tests.integration.doors.mcp_door import SENT
from tests.integration.python.stored import inbox

pytestmark = pytest.mark.servers
TEXT = "Ada sails."
Door = Callable[[Doors, dict[str, str], str], Awaitable[bool]]


async def through_http(doors: Doors, key: dict[str, str], session: str) -> bool:
    where = {"session": session, "user": "ada"}
    answer = await doors.http.post("/v1/agents/a/memories", params=where, json={"text": TEXT}, headers=key)
    assert answer.status_code in (202, 403), answer.text
    return answer.status_code == 202


async def through_the_inspector(doors: Doors, key: dict[str, str], session: str) -> bool:
    path, headers = f"/ui/add?agent=a&user=ada&session={session}", {**key, "Origin": doors.url}
    form = await doors.http.get(path, headers=headers)
    answer = await doors.http.post(path, data={"text": TEXT}, headers=headers, follow_redirects=True)
    assert answer.status_code == form.status_code
    assert answer.status_code in (200, 403), answer.text
    return answer.status_code == 200


async def through_mcp(doors: Doors, key: dict[str, str], session: str) -> bool:
    arguments = {"text": TEXT, "session": session, "user": "ada"}
    call = {"name": "add_memory", "arguments": arguments}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    headers = {**SENT, **key, "x-eden-agent": "a"}
    answer = (await doors.http.post("/mcp", json=body, headers=headers)).raise_for_status()
    said = next(line for line in answer.text.splitlines() if "jsonrpc" in line).removeprefix("data: ")
    return not json.loads(said)["result"].get("isError", False)


async def through_the_gateway(doors: Doors, key: dict[str, str], session: str) -> bool:
    messages = [{"role": "user", "content": TEXT}]
    body: dict[str, Any] = {"model": "m", "messages": messages, "memory_id": session, "user": "ada"}
    answer = await doors.http.post("/v1/chat/completions", json=body, headers=key)
    assert answer.status_code in (200, 403), answer.text
    return answer.status_code == 200


DOORS: tuple[Door, ...] = (through_http, through_the_inspector, through_mcp, through_the_gateway)


@pytest.fixture
async def key(doors: Doors) -> AsyncGenerator[dict[str, str]]:
    """A key for Ada and one agent."""
    name = f"ada-{uuid4().hex[:8]}"
    secret, _ = await doors.keys.create(name, agents=["s.a"], users=["s.ada"], rights=("read", "write"))
    yield {"X-Eden-Key": secret}
    await doors.kit.database["memory_inbox"].delete_many({"asked_by": {"$regex": name}})
    await doors.kit.database["messages"].delete_many({"session_id": {"$regex": "^new-"}})


@pytest.mark.parametrize("door", DOORS)
async def test_a_key_for_some_users_adds_to_a_session_that_has_no_document_yet(
    doors: Doors, key: dict[str, str], door: Door
) -> None:
    session = f"new-{uuid4().hex[:8]}"
    assert await door(doors, key, session)
    if door is not through_the_gateway:
        assert [asked["session_id"] for asked in await inbox(doors.kit)][-1] == session


@pytest.mark.parametrize("door", DOORS)
async def test_it_adds_to_none_in_which_another_user_has_written(
    doors: Doors, key: dict[str, str], door: Door
) -> None:
    session = f"new-{uuid4().hex[:8]}"
    said = {"session_id": session, "role": "user", "user_id": "bob", "content": "Mine."}
    await doors.kit.database["messages"].insert_one(said)
    assert not await door(doors, key, session)
