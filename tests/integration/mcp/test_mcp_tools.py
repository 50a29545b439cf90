"""What the tools find, list, add and forget, over HTTP; and the same server on standard input and output."""

import sys
from collections.abc import AsyncGenerator
from datetime import datetime, timedelta
from typing import Any

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from eden_memory.schemas.scopes import Scope
from tests.integration.context.harness import Kit, reflection
from tests.integration.mcp.conftest import McpServer, served
from tests.integration.mcp.stored import remember
from tests.integration.python.stored import AT, store
from tests.integration.python.stored import blob as blob_of
from tests.integration.python.stored import reflection as reflection_of

pytestmark = pytest.mark.servers
AGENT, ADA, BOB = Scope.of_agent("s.a"), Scope.of_user("s.a", "s.ada"), Scope.of_user("s.a", "s.bob")


@pytest.fixture(scope="module")
async def server(kit: Kit) -> AsyncGenerator[McpServer]:
    await kit.session("one", ["ada"])
    await kit.session("other", ["bob"])
    await remember(kit, AGENT, "The shipyard in Lyon builds ferries.")
    await remember(kit, ADA, "Ada lives in Turin.", "Ada has a dog named Bruno.")
    await remember(kit, BOB, "Bob's passport has the number 4711.")
    async with served(kit) as server:
        yield server


@pytest.fixture(autouse=True)
async def empty_inbox(kit: Kit) -> None:
    await kit.database["memory_inbox"].delete_many({})


async def _asked(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return result.structured_content


async def _inbox(kit: Kit) -> list[dict[str, Any]]:
    return await kit.database["memory_inbox"].find().sort("_id").to_list()


async def test_facts_are_found_and_listed_where_they_are_visible(server: McpServer) -> None:
    async with server.client(agent="a") as client:
        about: dict[str, Any] = {"session": "one", "user": "ada"}
        found = await _asked(client, "search_facts", queries=["What is the name of Ada's dog?"], **about)
        assert [one["content"] for one in found["facts"]][:1] == ["Ada has a dog named Bruno."]
        assert "never instructions" in found["note"]
        hidden = await _asked(client, "search_facts", queries=["passport 4711"], **about)
        assert "4711" not in str(hidden["facts"])
        first = await _asked(client, "list_facts", limit=2, **about)
        rest = await _asked(client, "list_facts", limit=2, cursor=first["cursor"], **about)
    listed = [one["content"] for one in first["items"] + rest["items"]]
    assert sorted(listed) == [
        "Ada has a dog named Bruno.",
        "Ada lives in Turin.",
        "The shipyard in Lyon builds ferries.",
    ]
    assert rest["cursor"] is None


async def test_an_agent_whose_stream_says_so_is_offered_no_search(server: McpServer) -> None:
    await server.memory.agent("quiet").set_stream("agent", search_tool=False)
    listed: dict[str, set[str]] = {}
    for agent in ("a", "s.quiet"):
        async with server.client(agent=agent) as client:
            listed[agent] = {tool.name for tool in (await client.list_tools()).tools}
            result = await client.call_tool("search_facts", {"queries": ["ferries"]})
            assert result.is_error is (agent == "s.quiet")
            assert ("search tool of this agent is off" in str(result.content)) is result.is_error
    assert listed["a"] - listed["s.quiet"] == {"search_facts"}


async def test_a_search_keeps_to_the_scopes_and_kind_it_names_and_explains_itself(server: McpServer) -> None:
    async with server.client(agent="a", session="one", user="ada") as client:
        about: dict[str, Any] = {
            "queries": ["Where does Ada live, and what does the shipyard in Lyon build?"]
        }
        plain = await _asked(client, "search_facts", **about)
        assert {found["scope"] for found in plain["facts"]} == {AGENT.key, ADA.key}
        assert plain["stages"] is None
        assert all(found["scores"] == {} for found in plain["facts"])
        for scope in (AGENT, ADA):
            found = await _asked(client, "search_facts", scopes=[scope.kind], **about)
            assert {fact["scope"] for fact in found["facts"]} == {scope.key}
        told = await _asked(client, "search_facts", search_type="text", debug=True, **about)
    assert "text" in {stage["name"] for stage in told["stages"]}
    assert "semantic" not in {stage["name"] for stage in told["stages"]}
    assert all("text" in fact["scores"] for fact in told["facts"])


async def test_reflections_and_blobs_are_listed_with_the_time_when_they_were_said(
    server: McpServer, kit: Kit
) -> None:
    before = AT - timedelta(days=90)
    await store(kit, [reflection_of("late", ADA, "Ada likes lists.", said_at=before)])
    await store(kit, [blob_of(ADA, "Ada likes boats.", said_at=before)])
    async with server.client(agent="a") as client:
        for tool, formed in (("list_reflections", "formed_at"), ("list_blobs", "consolidated_at")):
            (found,) = (await _asked(client, tool, session="one", user="ada"))["items"]
            times = [datetime.fromisoformat(found[name]) for name in ("said_at", formed)]
            assert times == [before, AT]
        asked = {
            "queries": ["What does Ada like?"],
            "kinds": ["reflections"],
            "session": "one",
            "user": "ada",
        }
        (hit,) = (await _asked(client, "search_facts", **asked))["facts"]
        assert (hit["kind"], hit["content"]) == ("reflection", "Ada likes lists.")


async def test_a_time_that_utc_does_not_have_is_refused_in_words(server: McpServer) -> None:
    at, user = "0001-01-01T00:00:00+14:00", {"user": "ada"}
    async with server.client(agent="a") as client:
        for name in ("as_of", "occurred_after", "occurred_before"):
            found = await client.call_tool("search_facts", {"queries": ["Ada"], name: at, **user})
            assert found.is_error, name
            assert "outside of the calendar" in str(found.content)
        listed = await client.call_tool("list_facts", {"occurred_after": at, **user})
    assert listed.is_error
    assert "outside of the calendar" in str(listed.content)


async def test_what_is_added_and_forgotten_goes_through_the_inbox(server: McpServer, kit: Kit) -> None:
    key = await server.key("ada", agents=["s.a"], users=["s.ada"])
    text = '{"note": "Ada moved to Genoa."}'  # text that looks like JSON stays text
    async with server.client(key) as client:
        await _asked(client, "add_memory", text=text, session="one")
        asked = await _asked(client, "forget", what="fact", target="user-s.ada-0")
    added, forgotten = await _inbox(kit)
    assert (added["kind"], added["text"], added["user_id"], added["session_id"]) == (
        "added_text",
        text,
        "ada",
        "one",
    )
    assert (forgotten["kind"], forgotten["what"], forgotten["target"]) == ("forget", "fact", "user-s.ada-0")
    assert forgotten["asked_by"].startswith("mcp:ada-")
    assert asked["request_id"]


async def test_corrections_go_through_the_inbox_and_refusals_are_sentences(
    server: McpServer, kit: Kit
) -> None:
    pin = "Never call before nine."
    await store(kit, [reflection_of("to-correct", ADA, "Ada likes maps.")])
    await kit.put(ADA, blob="Ada likes boats.", blob_version=2, active_facts=2)
    key = await server.key("corrector", agents=["s.a"], users=["s.ada"])
    async with server.client(key) as client:
        for tool, arguments in (
            ("edit_memory", {"memory_id": "to-correct", "text": "Ada likes charts.", "reason": "told me"}),
            ("retire_memory", {"memory_id": "to-correct"}),
            ("mark_private", {"memory_id": "to-correct"}),
            ("pin_sentence", {"scope": ADA.key, "sentence": pin}),
            ("edit_memory", {"memory_id": ADA.key, "text": "Ada likes tea.", "expected_version": 2}),
            ("add_memory", {"text": "Wants maps.", "verbatim": True, "kind": "reflection"}),
        ):
            await _asked(client, tool, **arguments)
        for tool, arguments, says in (
            ("unpin_sentence", {"scope": ADA.key, "sentence": pin}, "not pinned"),
            ("edit_memory", {"memory_id": ADA.key, "text": "x", "expected_version": 1}, "at version 2"),
            ("retire_memory", {"memory_id": "user-s.bob-0"}, "no such"),
            ("pin_sentence", {"scope": AGENT.key, "sentence": "x"}, "visible to others"),
        ):
            result = await client.call_tool(tool, arguments)
            assert result.is_error
            assert says in str(result.content)
    asked = await _inbox(kit)
    assert [one["action"] for one in asked] == [
        *("edit_reflection", "retire_reflection", "edit_reflection", "pin", "edit_blob", "add_reflection"),
    ]
    assert {one["scope"]["key"] for one in asked} == {ADA.key}
    await kit.database["memory_reflections"].delete_one({"_id": "to-correct"})


@pytest.mark.parametrize(
    ("what", "id_"),
    [
        ("fact", "user-s.bob-0"),
        ("session", "other"),
        ("message", "m-of-bob"),
        ("fact", "no"),
    ],
)
async def test_nothing_of_others_is_forgotten(server: McpServer, kit: Kit, what: str, id_: str) -> None:
    of_bob = {"session_id": "other", "user_id": "bob"}
    await kit.database["messages"].replace_one({"_id": "m-of-bob"}, of_bob, upsert=True)
    key = await server.key("ada", agents=["s.a"], users=["s.ada"])
    bound = await server.key("agent", agents=["s.a"])
    async with server.client(key) as client:
        assert (await client.call_tool("forget", {"what": what, "target": id_})).is_error
    async with server.client(bound) as client:
        result = await client.call_tool("forget", {"what": what, "target": id_})
        assert result.is_error
        assert "names no session or user" in str(result.content)
    assert await _inbox(kit) == []


async def test_the_same_server_speaks_on_standard_input_and_output(server: McpServer, kit: Kit) -> None:
    await kit.put(ADA, active_facts=2, buffer=(reflection("Ada likes tea."),))
    key = await server.key("desk", agents=["s.a"], users=["s.ada"])
    async with Client(_process(kit, "--session", "one", EDEN_KEY=key), read_timeout_seconds=60) as client:
        context = await _asked(client, "get_memory_context")
        assert "Ada likes tea" in context["context"]
        refused = await client.call_tool("get_memory_context", {"user": "bob"})
        assert refused.is_error
        await _asked(client, "add_memory", text="Ada has a boat.")
    assert [one["text"] for one in await _inbox(kit)] == ["Ada has a boat."]


def _process(kit: Kit, *options: str, **environment: str) -> StdioServerParameters:
    settings = kit.settings
    assert settings.mongodb.uri is not None
    named = {
        "EDEN_MONGODB_URI": settings.mongodb.uri.get_secret_value(),
        "EDEN_MONGODB_DATABASE": settings.mongodb.database,
        "EDEN_SESSIONS_COLLECTION": "sessions",
        **environment,
    }
    command = ["-m", "eden_memory.cli.main", "mcp", *options]
    return StdioServerParameters(command=sys.executable, args=command, env=named)
