"""Ids as an application has them, ObjectIds, are found at every door: in plain digits, typed, and by default."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from bson import ObjectId
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from eden_memory.adapters.langgraph import context_node
from eden_memory.api.service import MemoryService
from eden_memory.mongo.client import connect
from eden_memory.settings import Settings
from tests.integration.context.harness import Kit
from tests.integration.doors.conftest import Doors, doors_of
from tests.integration.gateway.gateway_kit import behind, chats_of
from tests.integration.system.commands import EDEN, eden, environment
from tests.integration.system.running_system import System, fast, system, until
from tests.model_server.chat_upstream import chat_upstream
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers
BOT, USER, SESSION = (ObjectId(f"65f0{number:020x}") for number in (1, 2, 3))
FACT = "Rui rows on Mondays."


@pytest.fixture(scope="module")
async def running(shared_settings: Settings, shared_models: Serving) -> AsyncGenerator[System]:
    """A chat whose session names its agent, a user and itself by ObjectIds; one fact has formed from it."""
    settings = fast(
        shared_settings, shared_models, sessions={"agent_id": "botId"}, agents={"default": f"o.{BOT}"}
    )
    async with system(settings, shared_models) as running:
        await running.source["sessions"].insert_one({"_id": SESSION, "botId": BOT, "users": [USER]})
        session, user = as_they_are(SESSION), as_they_are(USER)
        await running.told(session, user, f"fact user: {FACT}")
        yield running


def as_they_are(given: Any) -> Any:
    return given


@pytest.fixture(scope="module")
async def doors(running: System) -> AsyncGenerator[Doors]:
    assert running.settings.mongodb.uri is not None
    uri = running.settings.mongodb.uri.get_secret_value()
    async with (
        connect(uri) as client,
        doors_of(Kit(running.settings, client)) as doors,
    ):
        yield doors


@pytest.mark.parametrize(
    "options", [[], ["--agent", str(BOT)], ["--agent", f"o.{BOT}"], ["--agent", "default"]]
)
async def test_commands(running: System, options: list[str]) -> None:
    assert FACT in await eden(running.settings, "facts", "--user", str(USER), *options)


@pytest.mark.parametrize("agent", ["default", str(BOT), f"o.{BOT}"])
async def test_http(doors: Doors, agent: str) -> None:
    whose = {"session": str(SESSION), "user": str(USER)}
    facts = await doors.http.get(f"/v1/agents/{agent}/facts", params=whose)
    context = await doors.http.get(f"/v1/agents/{agent}/context", params=whose)
    page = await doors.http.get("/ui/context", params={"agent": agent, **whose})
    assert FACT in facts.text
    assert FACT in context.text
    assert FACT in page.text


async def test_a_key_that_is_bound_by_plain_digits(running: System, doors: Doors) -> None:
    bound = ["--user", str(USER), "--agent", str(BOT)]
    made = json.loads(await eden(running.settings, "keys", "create", "app", *bound, "--json"))
    headers = {"X-Eden-Key": made["secret"]}
    assert made["agents"] == [f"o.{BOT}"]
    params = {"user": str(USER)}
    facts = await doors.http.get("/v1/agents/default/facts", params=params, headers=headers)
    assert FACT in facts.text
    other = await doors.http.get("/v1/agents/s.default/facts", params=params, headers=headers)
    assert other.status_code == 403


@pytest.mark.parametrize(
    ("options", "because"),
    [
        (["--agent", "nobody"], f"there is no agent s.nobody\nThe newest agents are o.{BOT}"),
        (["--user", "nobody"], f"there is no user s.nobody\nThe newest users are o.{USER}"),
        (["--user", str(USER), "--since", "2100-01-01"], "1 facts may be seen here"),
        (["--user", str(USER), "--agent", "s.other"], "there is no agent s.other"),
    ],
)
async def test_no_answer_is_empty_without_its_reason(
    running: System, options: list[str], because: str
) -> None:
    assert because in await eden(running.settings, "facts", *options)


async def test_what_waits_is_the_reason_at_every_door_for_operators_alone(
    running: System, doors: Doors
) -> None:
    user, session = as_they_are(ObjectId()), as_they_are(ObjectId())
    await running.source["sessions"].insert_one({"_id": session, "botId": BOT, "users": [user]})
    (message,) = await running.write(session, user, "Hello.")

    async def read() -> bool:
        return (
            await running.memory("messages").find_one({"_id": f"s.{message}", "place": {"$gt": 0}})
            is not None
        )

    await until(read, "the message waits")
    for command in (["facts"], ["reflections"], ["search", "rowing"]):
        assert "1 message waits for a window" in await eden(running.settings, *command, "--user", str(user))
    whose = {"session": str(session), "user": str(user)}
    secret, _ = await doors.keys.create("bound", agents=[f"o.{BOT}"], users=[f"o.{user}"], rights=["read"])
    reader, _ = await doors.keys.create("reader", rights=["read"])
    for headers in ({}, {"X-Eden-Key": secret}, {"X-Eden-Key": reader}):
        context = await doors.http.get("/v1/agents/default/context", params=whose, headers=headers)
        facts = await doors.http.get("/v1/agents/default/facts", params=whose, headers=headers)
        assert (context.status_code, facts.json()["items"]) == (204, [])
        for answer in (context, facts):
            assert ("Eden-Empty-Because" in answer.headers) == (not headers)
            assert answer.headers.get("Eden-Empty-Because", "not_formed_yet").startswith("not_formed_yet")
    page = await doors.http.get("/ui/context", params={"agent": "default", **whose})
    assert "1 message waits for a window" in page.text
    unknown = await doors.http.get("/v1/agents/s.default/context", params={"user": str(USER), "session": "x"})
    assert unknown.headers["Eden-Empty-Because"] == "unknown_agent; there is no agent s.default"


@pytest.mark.parametrize("options", [["--user", str(USER)], ["--user", f"o.{USER}", "--agent", str(BOT)]])
async def test_mcp(running: System, options: list[str]) -> None:
    command, *arguments = EDEN
    server = StdioServerParameters(
        command=command, args=[*arguments, "mcp", *options], env=environment(running.settings)
    )
    async with Client(server) as client:
        assert FACT in str(await client.call_tool("list_facts", {}))
        assert FACT in str(await client.call_tool("list_facts", {"user": str(USER)}))


async def test_the_gateway(running: System) -> None:
    async with chat_upstream() as upstream:
        placed = behind(running.settings, upstream.openai_url)
        async with chats_of(placed, upstream) as chats:
            await chats.say("Hello.", user=str(USER), memory_id=str(SESSION))
            assert FACT in str(chats.came.messages)


async def test_python_and_an_adapter(running: System, doors: Doors) -> None:
    async with MemoryService(settings=running.settings) as service:
        assert [fact.content for fact in (await service.list_facts(user=USER)).items] == [FACT]
    read = context_node(doors.memory)
    config: Any = {"configurable": {"thread_id": str(SESSION), "user_id": str(USER)}}
    assert FACT in (await read({}, config))["memory"]
