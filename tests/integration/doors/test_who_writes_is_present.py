"""With sessions unmapped and nothing running: one message of another user hides a user's memory at every door."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from eden_memory.cli.main import app
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import GatewaySettings, MessagesSettings, MongoSettings, Settings, SourceSettings
from tests.integration.context.harness import Kit, kit_for, reflection
from tests.integration.doors.conftest import Doors, doors_of
from tests.integration.doors.mcp_door import SENT
from tests.integration.doors.world import mark_of, remember
from tests.model_server.chat_upstream import ChatUpstream
from tests.servers import TestServers

pytestmark = pytest.mark.servers
ADA = Scope.of_user("s.default", "s.ada")
SECRET = mark_of(ADA.key)
QUESTION = "What did I say the secret word is?"
Door = Callable[[Doors, str], Awaitable[str]]


async def python_context(doors: Doors, user: str) -> str:
    return await doors.memory.agent().get_memory_context("one", user, QUESTION)


async def python_search(doors: Doors, user: str) -> str:
    return repr(await doors.memory.agent().search_facts(QUESTION, session="one", user=user))


async def python_lists(doors: Doors, user: str) -> str:
    return repr((await doors.memory.agent().list_facts(session="one", user=user)).items)


async def http_context(doors: Doors, user: str) -> str:
    where = {"session": "s.one", "user": f"s.{user}", "message": QUESTION}
    return (await doors.http.get("/v1/agents/s.default/context", params=where)).raise_for_status().text


async def http_search(doors: Doors, user: str) -> str:
    body = {"queries": [QUESTION]}
    where = {"session": "s.one", "user": f"s.{user}"}
    found = await doors.http.post("/v1/agents/s.default/search", params=where, json=body)
    return found.raise_for_status().text


async def mcp_search(doors: Doors, user: str) -> str:
    arguments = {"queries": [QUESTION], "session": "s.one", "user": f"s.{user}"}
    return await _mcp(doors, "tools/call", {"name": "search_facts", "arguments": arguments})


async def mcp_context(doors: Doors, user: str) -> str:
    return await _mcp(doors, "resources/read", {"uri": f"memory://context/s.one/s.{user}"})


async def _mcp(doors: Doors, method: str, params: dict[str, Any]) -> str:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = await doors.http.post("/mcp", json=body, headers=SENT)
    assert '"error"' not in answer.text, answer.text
    return answer.raise_for_status().text


DOORS: tuple[Door, ...] = (
    python_context, python_search, python_lists, http_context, http_search, mcp_context, mcp_search,
)  # fmt: skip


@pytest.fixture(scope="module")
async def opened(servers: TestServers, upstream: ChatUpstream) -> AsyncGenerator[Doors]:
    """Ada's memory, sessions unmapped; no tailer and no trigger ever ran."""
    mongodb = MongoSettings(uri=SecretStr(servers.mongodb_uri), database=f"t{uuid4().hex[:12]}")  # pyright: ignore[reportCallIssue]
    gateway = GatewaySettings(upstream=upstream.openai_url, memory_seconds=60)  # pyright: ignore[reportCallIssue]
    async with kit_for(Settings(mongodb=mongodb, gateway=gateway)) as kit:
        try:
            await remember(kit, [ADA])
            async with doors_of(kit) as doors:
                await doors.memory.ready()
                yield doors
        finally:
            await kit.client.drop_database(mongodb.database)


@pytest.fixture
async def doors(opened: Doors) -> AsyncGenerator[Doors]:
    """Nobody has written yet."""
    yield opened
    for name in ("messages", "others", "memory_sessions", "memory_positions", "memory_inbox"):
        await opened.kit.database[name].drop()
    opened.memory.contexts.cache.clear()


async def says(kit: Kit, user: str | None, **fields: Any) -> Any:
    """A chat message, as an application writes it; its id."""
    role = "assistant" if user is None else "user"
    message = {"session_id": "one", "role": role, "content": "Hello", "user_id": user, **fields}
    return (await kit.database["messages"].insert_one(message)).inserted_id


@pytest.mark.parametrize("door", DOORS)
async def test_one_message_of_another_user_hides_a_users_memory_at_once(doors: Doors, door: Door) -> None:
    assert SECRET in await door(doors, "ada")  # before the first message
    await says(doors.kit, "ada")
    await says(doors.kit, None)
    assert SECRET in await door(doors, "ada")
    assert SECRET not in await door(doors, "bob")
    await says(doors.kit, "bob")
    assert SECRET not in await door(doors, "ada")
    assert SECRET not in await door(doors, "bob")


@pytest.mark.parametrize("door", DOORS)
async def test_a_message_of_a_user_whom_nobody_names_hides_a_users_memory_at_once(
    doors: Doors, door: Door
) -> None:
    await says(doors.kit, "ada")
    await says(doors.kit, None, role="event")
    await doors.memory.agent().on_session_end("one")  # a request of the inbox is nobody's message
    assert SECRET in await door(doors, "ada")
    unnamed = {"session_id": "one", "role": "user", "content": "Hello"}
    await doors.kit.database["messages"].insert_one(unnamed)
    assert SECRET not in await door(doors, "ada")


async def test_one_chat_without_a_user_hides_a_users_memory_in_its_session(doors: Doors) -> None:
    async def chat(**user: str) -> None:
        messages = [{"role": "user", "content": f"Hi from {user}"}]
        body = {"model": "m", "messages": messages, "memory_id": "one", **user}
        (await doors.http.post("/v1/chat/completions", json=body)).raise_for_status()
        async with asyncio.timeout(60):
            query = {"text": messages[0]["content"]}
            while not await doors.kit.database["memory_inbox"].find_one(query):  # noqa: ASYNC110 - stored beside it
                await asyncio.sleep(0.01)

    await chat(user="ada")
    assert SECRET in await http_context(doors, "ada")
    await chat()
    assert SECRET not in await http_context(doors, "ada")


async def test_unnamed_users_and_named_ones_share_the_sessions_own_memory(doors: Doors) -> None:
    for session, users in (("one", ("s.ada",)), ("unnamed", ())):
        scope = Scope.of_session("s.default", f"s.{session}", users)
        await doors.kit.put(scope, buffer=(reflection(f"They plan a trip in {session}."),))
    await says(doors.kit, "ada")
    await says(doors.kit, None, role="user")
    await says(doors.kit, None, role="user", session_id="unnamed")
    memory = doors.memory.agent()
    assert "a trip in one" in await memory.get_memory_context("one", "ada")
    assert "a trip in unnamed" in await memory.get_memory_context("unnamed")


async def test_the_gateway_gives_a_provider_no_memory_of_one_of_two_users(
    doors: Doors, upstream: ChatUpstream
) -> None:
    async def chat(user: str) -> str:
        upstream.came.clear()
        messages = [{"role": "user", "content": f"{user} asks: {QUESTION}"}]
        body = {"model": "m", "messages": messages, "memory_id": "one", "user": user}
        answer = await doors.http.post("/v1/chat/completions", json=body)
        return answer.raise_for_status().text + upstream.came[-1].raw.decode()

    assert SECRET in await chat("ada")
    assert SECRET not in await chat("bob")
    stored = doors.kit.database["memory_inbox"]
    async with asyncio.timeout(60):
        while not await stored.find_one({"user_id": "bob"}):  # noqa: ASYNC110 - stored beside the answer
            await asyncio.sleep(0.01)
    assert SECRET not in await chat("ada")


async def test_the_command_line_shows_no_memory_of_one_of_two_users(
    doors: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = doors.kit
    assert kit.settings.mongodb.uri is not None
    monkeypatch.setenv("EDEN_MONGODB_URI", kit.settings.mongodb.uri.get_secret_value())
    monkeypatch.setenv("EDEN_MONGODB_DATABASE", kit.settings.mongodb.database)

    async def shown(*arguments: str) -> str:
        return (await asyncio.to_thread(CliRunner().invoke, app, ["context", "one", *arguments])).output

    await says(kit, "ada")
    assert SECRET in await shown()
    await says(kit, "bob")
    for arguments in ((), ("--user", "ada"), ("--user", "bob")):
        assert SECRET not in await shown(*arguments)


async def test_an_edited_author_and_a_moved_message_are_seen_as_well(doors: Doors) -> None:
    messages = doors.kit.database["messages"]
    first = await says(doors.kit, "ada")
    assert SECRET in await python_context(doors, "ada")
    await messages.update_one({"_id": first}, {"$set": {"user_id": "bob"}})
    assert SECRET not in await python_context(doors, "ada")
    await messages.update_one({"_id": first}, {"$set": {"user_id": "ada"}})
    assert SECRET in await python_context(doors, "ada")
    other = await says(doors.kit, "bob", session_id="two")
    assert SECRET in await python_context(doors, "ada")
    await messages.update_one({"_id": other}, {"$set": {"session_id": "one"}})
    assert SECRET not in await python_context(doors, "ada")


async def test_an_author_whose_messages_are_gone_is_remembered_by_the_trigger(doors: Doors) -> None:
    await says(doors.kit, "ada")
    await doors.kit.authors("one", "ada", "bob")
    assert SECRET not in await python_context(doors, "ada")


@pytest.mark.parametrize("author", [{"name": "bob"}, 1.5])
async def test_an_author_that_is_no_id_hides_every_users_memory(doors: Doors, author: Any) -> None:
    assert SECRET in await python_context(doors, "ada")
    await says(doors.kit, author)
    assert SECRET not in await python_context(doors, "ada")


async def test_where_the_tailer_reads_other_messages_nobodys_memory_is_shown(doors: Doors) -> None:
    kit = doors.kit
    elsewhere = Settings(
        source=SourceSettings(database=kit.settings.mongodb.database),
        messages=MessagesSettings(collection="chats"),
    )
    positions = kit.database["memory_positions"]
    await positions.insert_one({"_id": elsewhere.source_name})
    assert SECRET not in await python_context(doors, "ada")
    await positions.insert_one({"_id": kit.settings.source_name})
    assert SECRET in await python_context(doors, "ada")


async def test_messages_that_cannot_be_read_show_nobodys_memory(doors: Doors) -> None:
    database = doors.kit.database
    await database["others"].insert_one({"session_id": "one", "user_id": "ada", "zero": 0})
    await database["messages"].drop()
    failing = [{"$match": {"$expr": {"$divide": [1, "$zero"]}}}]
    await database.create_collection("messages", viewOn="others", pipeline=failing)
    assert SECRET not in await python_context(doors, "ada")
    await database["others"].update_many({}, {"$set": {"zero": 1}})
    assert SECRET in await python_context(doors, "ada")
