"""Each adapter in its real framework, and the programs of docs/adapters.md and README as a new user runs them."""

import asyncio
import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypedDict

import pytest
from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from bson import ObjectId
from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from openai import AsyncOpenAI
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import RunContext
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pymongo.asynchronous.database import AsyncDatabase
from typer.testing import CliRunner

from eden_memory.adapters.conversation import ConversationMemory
from eden_memory.adapters.langgraph import EdenStore, context_node
from eden_memory.adapters.openai_agents import ChatSession, instructions, search_tool
from eden_memory.adapters.pydantic_ai import memory_toolset
from eden_memory.api.service import Memory
from eden_memory.cli.main import app
from eden_memory.errors import Invalid, NotAnId
from eden_memory.settings import Settings
from tests.integration.adapters.conftest import Lived, call_of_search, eventually
from tests.integration.mcp.written import ROOT, blocks
from tests.integration.system.running_system import prepare
from tests.model_server.chat_upstream import Reply

pytestmark = [pytest.mark.servers, pytest.mark.timeout(240)]
BOAT = "My boat is called Gaivota."
QUESTION = "What is the name of my boat?"
USER = ("user", "rui")
PIPE = asyncio.subprocess.PIPE
ANSWER = "On 9 March."
MESSAGE: dict[str, Any] = {
    "type": "message",
    "id": "m",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": ANSWER, "annotations": []}],
}
OF_RESPONSES: dict[str, Any] = {
    "id": "r",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "status": "completed",
    "output": [MESSAGE],
    "parallel_tool_calls": False,
    "tool_choice": "auto",
    "tools": [],
}


@pytest.mark.slow
async def test_openai_agents_keep_the_chat_and_remember_it(lived: Lived) -> None:
    set_tracing_disabled(True)
    memory = lived.of("c1", "rui")
    client = AsyncOpenAI(base_url=lived.provider.openai_url, api_key="sk-test")
    agent = Agent(
        "boatyard",
        instructions=instructions(memory, "Be brief."),
        tools=[search_tool(memory)],
        model=OpenAIChatCompletionsModel("gpt-5-mini", client),
    )
    session = ChatSession(memory)
    lived.answers(Reply(("Noted.",)))
    assert (await Runner.run(agent, BOAT, session=session)).final_output == "Noted."
    await lived.formed(memory, "Gaivota")
    lived.answers(call_of_search("name of the boat"), Reply(("Gaivota.",)))
    result = await Runner.run(agent, QUESTION, session=session)
    await client.close()

    assert result.final_output == "Gaivota."
    asked, answered = (came.messages for came in lived.provider.came[-2:])
    assert "Be brief." in asked[0]["content"]
    assert "Gaivota" in asked[0]["content"]
    assert [message["content"] for message in asked[1:]] == [BOAT, "Noted.", QUESTION]
    assert "Gaivota" in str(answered[-1])
    texts = [BOAT, "Noted.", QUESTION, "Gaivota."]
    assert [item["content"] for item in await items(session)] == texts  # no calls of tools
    assert [item["content"] for item in await items(session, 2)] == texts[2:]
    popped: Any = await session.pop_item()
    assert (popped["role"], popped["content"]) == ("assistant", "Gaivota.")
    assert [item["content"] for item in await items(session)] == texts[:3]


BY_AUTHOR: dict[str, Any] = {
    "role": "user_id",
    "roles": {"bot-1": "assistant", "*": "user"},
    "content": ("body", "content"),
}


@pytest.mark.parametrize(
    ("created_at", "mapped"),
    [("2026-10-01T10:00:00Z", {}), (datetime(2026, 10, 1, tzinfo=UTC), BY_AUTHOR)],
)
async def test_a_chat_is_read_in_the_order_in_which_it_was_added(
    settings: Settings, database: AsyncDatabase[dict[str, Any]], created_at: Any, mapped: dict[str, Any]
) -> None:
    settings = settings.model_copy(update={"messages": settings.messages.model_copy(update=mapped)})
    await prepare(settings)
    await database["messages"].insert_one(
        {"session_id": "other", "role": "user", "content": "Hello.", "created_at": created_at}
    )
    async with Memory(settings) as memory:
        session = ChatSession(ConversationMemory(memory.agent(), "ordered", "rui"))
        texts = [f"Message {number}." for number in range(60)]
        await session.add_items([{"role": "user", "content": text} for text in texts[:59]])
        await session.add_items([{"role": "assistant", "content": texts[59]}])
        assert [item["content"] for item in await items(session)] == texts
        assert {item["role"] for item in await items(session)} == {"user", "assistant"}
        assert await items(session, 0) == []
        assert (await session.pop_item() or {}).get("content") == texts[59]


async def items(session: ChatSession, limit: int | None = None) -> list[Any]:
    return list(await session.get_items(limit))


async def test_pydantic_ai_reads_the_context_and_searches(lived: Lived) -> None:
    memory = lived.of("c2", "rui")
    await memory.service.add("Rui's boat is blue.", user="rui", verbatim=True)
    await lived.formed(memory, "blue")
    provider = OpenAIProvider(base_url=lived.provider.openai_url, api_key="sk-test")
    agent = PydanticAgent(
        OpenAIChatModel("gpt-5-mini", provider=provider),
        deps_type=ConversationMemory,
        toolsets=[memory_toolset(lambda run: run.deps)],
    )
    lived.answers(call_of_search("colour of the boat"), Reply(("Blue.",)))
    result = await agent.run("What colour is my boat?", deps=memory)
    assert result.output == "Blue."
    asked, answered = (came.messages for came in lived.provider.came[-2:])
    assert "boat is blue" in asked[0]["content"]
    assert "search_facts" in asked[0]["content"]
    assert "boat is blue" in answered[-1]["content"]
    lived.answers(call_of_search(), Reply(("Sorry.",)))
    await agent.run("What colour is my boat?", deps=memory)
    await provider.client.close()
    assert "do not fit the tool's schema" in lived.provider.came[-1].messages[-1]["content"]


async def test_an_agent_whose_stream_says_so_is_offered_no_search_tool(lived: Lived) -> None:
    set_tracing_disabled(True)
    quiet = lived.memory.agent("quiet")
    await quiet.set_stream("agent", search_tool=False)
    memory = ConversationMemory(quiet, "c4", "rui")
    await quiet.add("Rui's boat is blue.", user="rui", verbatim=True)
    await lived.formed(memory, "blue")
    client = AsyncOpenAI(base_url=lived.provider.openai_url, api_key="sk-test")
    model = OpenAIChatCompletionsModel("gpt-5-mini", client)
    lived.answers(Reply(("Blue.",)), Reply(("Blue.",)))
    await Runner.run(
        Agent("quiet", instructions=instructions(memory), tools=[search_tool(memory)], model=model), QUESTION
    )
    provider = OpenAIProvider(openai_client=client)

    def given(run: RunContext[ConversationMemory]) -> ConversationMemory:
        return run.deps

    other = PydanticAgent(
        OpenAIChatModel("gpt-5-mini", provider=provider),
        deps_type=ConversationMemory,
        toolsets=[memory_toolset(given)],
    )
    await other.run(QUESTION, deps=memory)
    await client.close()
    for came in lived.provider.came[-2:]:
        assert "boat is blue" in came.raw.decode(), "its context is as ever"
        assert "search_facts" not in came.raw.decode()


class State(TypedDict):
    messages: list[AnyMessage]
    memory: str
    found: list[str]


async def test_langgraph_reads_searches_and_changes_memory(lived: Lived) -> None:
    store = EdenStore(lived.memory.agent())
    await store.aput(USER, "new", {"text": "Rui sails on Sundays."})
    await lived.formed(lived.of("c3", "rui"), "Sundays")

    def search(state: State, runtime: Runtime[None]) -> dict[str, list[str]]:
        assert runtime.store is not None
        found = runtime.store.search(USER, query=str(state["messages"][-1].content), limit=1)
        return {"found": [item.value["text"] for item in found]}

    graph: Any = StateGraph(State)
    graph.add_node("remember", context_node(lived.memory))
    graph.add_node("search", search)
    graph.add_edge(START, "remember")
    graph.add_edge("remember", "search")
    graph.add_edge("search", END)
    config = {"configurable": {"thread_id": "c3", "user_id": "rui"}}
    state = {"messages": [HumanMessage("When does Rui sail?")]}
    end = await graph.compile(store=store).ainvoke(state, config)
    assert "sails on Sundays" in end["memory"]
    assert end["found"] == ["Rui sails on Sundays."]

    (item,) = [item for item in await store.asearch(USER) if "Sundays" in item.value["text"]]
    assert await store.aget(("user", "ana"), item.key) is None
    assert await store.aget(("agent",), item.key) is None
    await store.aput(USER, item.key, {"text": "Rui sails on Mondays."})
    await eventually(lambda: text_is(store, item.key, "Rui sails on Mondays."), "the new text")
    await store.adelete(USER, item.key)
    await eventually(lambda: text_is(store, item.key, None), "the fact is retired")
    with pytest.raises(Invalid, match="namespace of memory"):
        await store.asearch(("memories", "rui"))


async def test_langgraph_takes_a_user_whose_text_looks_typed_as_that_text(lived: Lived) -> None:
    await EdenStore(lived.memory.agent()).aput(
        ("user", "s", "mith@example%2Ecom"), "new", {"text": "Mith rows."}
    )
    await lived.formed(lived.of("c9", "mith@example.com"), "Mith")
    read = context_node(lived.memory)
    found: dict[str, str] = {}
    for user in ("mith@example.com", "s.mith@example.com", "o.brien@example.com"):
        config: Any = {"configurable": {"thread_id": "c9", "user_id": user}}
        found |= {user: (await read({}, config))["memory"]}
    assert [user for user, context in found.items() if "Mith rows." in context] == ["mith@example.com"]


async def test_langgraph_addresses_users_whose_ids_are_no_text(lived: Lived) -> None:
    service, user = lived.memory.agent(), ObjectId()
    store, namespace = EdenStore(service), ("user", "o", str(user))
    await store.aput(namespace, "new", {"text": "Ana sails on Fridays."})

    async def is_found() -> bool:
        return bool(await store.asearch(namespace))

    await eventually(is_found, "the text is a fact")
    (fact,) = (await service.list_facts(user=user)).items
    (item,) = await store.asearch(namespace, query="When does Ana sail?")
    assert (item.key, item.namespace, item.value["text"]) == (fact.fact_id, namespace, fact.content)
    assert await store.asearch(("user", str(user))) == []
    with pytest.raises(NotAnId):
        await store.asearch(("user", "o", "ana"))


async def test_langgraph_filters_by_what_an_item_says_and_facts_expire(lived: Lived) -> None:
    service = lived.memory.agent()
    store, namespace = EdenStore(service), ("user", "tia")
    for year, text in (
        (2023, "Tia fished for cod."),
        (2024, "Tia fished for eel."),
        (2025, "Tia fished for hake."),
    ):
        await service.add(text, user="tia", verbatim=True, at=f"{year}-05-01")

    async def texts(query: str | None = None, **wanted: Any) -> list[str]:
        found = await store.asearch(namespace, query=query, filter=wanted)
        return sorted(item.value["text"].split()[-1] for item in found)

    async def all_are_there() -> bool:
        return await texts() == ["cod.", "eel.", "hake."]

    await eventually(all_are_there, "three facts")
    since = {"$gte": "2024-05-01", "$lt": "2025-05-01T00:00:00Z"}
    assert await texts(said_at=since) == await texts("What did Tia fish for?", said_at=since) == ["eel."]
    assert (
        await texts(text="Tia fished for cod.")
        == await texts(text={"$eq": "Tia fished for cod."})
        == ["cod."]
    )
    assert await texts(text={"$ne": "Tia fished for cod."}, version=1) == ["eel.", "hake."]
    assert (
        await texts(version={"$gt": 1})
        == await texts(version={"$lte": "one"})
        == await texts(colour="red")
        == []
    )
    assert await texts(version={"$lte": 1}, said_at={"$gt": "2024-12-01"}) == ["hake."]
    assert len(await store.asearch(namespace, filter={"version": 1}, limit=1, offset=2)) == 1
    with pytest.raises(Invalid, match=r"no \$in"):
        await texts(version={"$in": [1]})

    (eel,) = await store.asearch(namespace, filter={"said_at": since})
    await store.aput(namespace, eel.key, {"text": "Tia fishes for eel."}, ttl=0.02)
    await store.aput(namespace, "new", {"text": "Tia mends a net."}, ttl=60)

    async def one_has_expired() -> bool:
        return await texts() == ["cod.", "hake.", "net."]

    await eventually(one_has_expired, "the fact with a ttl of a second goes")
    assert await store.aget(namespace, eel.key) is None
    facts = (await service.list_facts(user="tia")).items
    (net,) = [fact for fact in facts if "net" in fact.content]
    assert net.expires_at is not None
    assert timedelta(minutes=50) < net.expires_at - datetime.now(UTC) < timedelta(minutes=61)


async def text_is(store: EdenStore, key: str, text: str | None) -> bool:
    item = await store.aget(USER, key)
    return (None if item is None else item.value["text"]) == text


async def test_a_coding_agents_hook_leaves_its_turns_to_memory(
    lived: Lived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = lived.settings
    assert settings.mongodb.uri is not None
    monkeypatch.setenv("EDEN_MONGODB_URI", settings.mongodb.uri.get_secret_value())
    monkeypatch.setenv("EDEN_MONGODB_DATABASE", settings.mongodb.database)
    transcript = tmp_path / "t.jsonl"
    answer = {"role": "assistant", "content": [{"type": "text", "text": "I will use tabs."}]}
    lines = ({"type": "assistant", "uuid": "u1", "message": answer}, {"type": "system"})
    transcript.write_text("".join(json.dumps(line) + "\n" for line in lines))
    asked = {
        "hook_event_name": "UserPromptSubmit",
        "session_id": "s1",
        "prompt": "My laptop is called Tern.",
    }
    ended = {"hook_event_name": "Stop", "session_id": "s1", "transcript_path": str(transcript)}
    for event in (asked, ended, ended, {"hook_event_name": "PreToolUse", "session_id": "s1"}):
        result = await asyncio.to_thread(
            CliRunner().invoke, app, ["capture", "--user", "dev"], input=json.dumps(event)
        )
        assert (result.exit_code, result.output) == (0, "")
    memory = lived.of("s1", "dev")
    said = [(message.role, message.text) for message in await memory.messages.read()]
    assert said == [("user", asked["prompt"]), ("assistant", "I will use tabs.")]
    await lived.formed(memory, "Tern")


def environment(lived: Lived) -> dict[str, str]:
    settings = lived.settings
    assert settings.mongodb.uri is not None
    return {
        **os.environ,
        "EDEN_MONGODB_URI": settings.mongodb.uri.get_secret_value(),
        "EDEN_MONGODB_DATABASE": settings.mongodb.database,
        "EDEN_KAFKA_TOPIC_PREFIX": settings.kafka.topic_prefix,
        "OPENAI_API_KEY": "sk-test",
        "OPENAI_BASE_URL": lived.provider.openai_url,
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "PYTHONPATH": str(ROOT),
    }


def python_of(page: str, heading: str) -> str:
    return next(text for language, text in blocks(page, heading) if language == "python")


@pytest.fixture(scope="module")
async def boat(lived: Lived) -> Lived:
    memory = lived.of("c1", "rui")
    await memory.service.add("The boat Gaivota is due on 9 March.", user="rui", verbatim=True)
    await lived.formed(memory, "Gaivota")
    return lived


@pytest.mark.slow
@pytest.mark.parametrize(
    ("heading", "reply", "expected"),
    [
        ("LangGraph", Reply(), "Gaivota"),
        ("OpenAI Agents SDK", Reply(response=(200, [], json.dumps(OF_RESPONSES).encode())), ANSWER),
        ("pydantic-ai", Reply((ANSWER,)), ANSWER),
    ],
)
async def test_the_pages_program_runs(
    boat: Lived, tmp_path: Path, heading: str, reply: Reply, expected: str
) -> None:
    boat.answers(reply)
    program = tmp_path / "program.py"
    program.write_text(python_of("docs/adapters.md", heading))
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(program), cwd=tmp_path, env=environment(boat), stdout=PIPE, stderr=PIPE
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert expected in out.decode()
    if heading != "LangGraph":
        assert "Gaivota" in boat.provider.came[-1].raw.decode()


async def test_the_readmes_consumer_prints_a_fact_that_was_formed(boat: Lived, tmp_path: Path) -> None:
    text = python_of("README.md", "Living with it")
    written = text.replace("127.0.0.1:9092", boat.settings.kafka.bootstrap or "")
    (tmp_path / "consumer.py").write_text(written)
    assert len([line for line in text.splitlines() if line]) <= 12
    command = (sys.executable, "-m", "faststream", "run", "consumer:app")
    process = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, env=environment(boat), stdout=PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            while b"Gaivota" not in (line := await process.stdout.readline()):
                assert line, "it has ended"
    finally:
        process.terminate()
        await process.wait()
    assert line.startswith(b"user:s.default:s.rui ADD ")
