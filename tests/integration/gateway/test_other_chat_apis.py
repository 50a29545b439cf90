"""OpenAI's responses and Anthropic's messages through the gateway, with the providers' own clients.

The other files of this folder talk over chat completions; this one alone finds what differs by API: where memory goes
in, what an answer repeats of it, and how turns are read from items, blocks and events.
"""

from typing import Any, cast

import httpx2
import pytest
from anthropic import AsyncAnthropic, BadRequestError

from tests.integration.gateway.gateway_kit import CALLERS_KEY, Chats, says
from tests.integration.mcp.written import ROOT
from tests.model_server.upstream_formats import THOUGHT
from tests.node_programs import install, node

pytestmark = pytest.mark.servers
CALL = {"call_id": "call_1", "name": "weather", "arguments": "{}"}
TOOL: dict[str, Any] = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object"},
    "strict": False,
}


@pytest.fixture
def who(session: str, user: str) -> dict[str, Any]:
    return {"memory_id": session, "user": user}


async def responded(chats: Chats, said: Any, who: dict[str, Any], **more: Any) -> Any:
    async with chats.client() as client:
        responses = cast("Any", client.responses)
        return await responses.create(model="m", input=said, extra_body=who, **more)


def claude(chats: Chats) -> AsyncAnthropic:
    pool = httpx2.AsyncClient(verify=False)
    return AsyncAnthropic(base_url=chats.url, api_key=CALLERS_KEY, max_retries=0, http_client=pool)


@pytest.mark.parametrize("instructions", [None, "Be brief."])
async def test_a_response_is_given_memory_in_its_instructions_and_repeats_only_the_callers_own(
    chats: Chats, session: str, user: str, instructions: str | None
) -> None:
    await chats.remembers(user, "Likes tables.", "Ann keeps nine bees.")
    own = {} if instructions is None else {"instructions": instructions}
    found = await responded(chats, "My bees?", {"memory_id": session, "user": user}, **own)
    assert found.output_text == "Hello there."
    assert found.instructions == instructions
    assert found.model_extra == {"memory_hits": []}
    sent = chats.came.body
    assert sent["input"] == "My bees?"
    assert sent["instructions"].startswith(instructions or "<MemoryContext>")
    assert "Likes tables." in sent["instructions"]
    assert sent["instructions"].endswith("</MemoryContext>")
    assert "Ann keeps nine bees." in sent["instructions"]
    assert await chats.stored(session) == [("user", "My bees?"), ("assistant", "Hello there.")]


async def test_a_streamed_response_with_a_tool_and_a_previous_response_is_stored_turn_by_turn(
    chats: Chats, who: dict[str, Any]
) -> None:
    await chats.remembers(who["user"], "Likes tables.")
    chats.upstream.reply = says("Let me", "\n\n", "look.", tool_calls=[CALL])
    events: list[Any] = []
    async with chats.client() as client:
        more: dict[str, Any] = {"stream": True, "tools": [TOOL], "extra_body": {"user": who["user"]}}
        more["extra_body"] = {"memory_id": who["memory_id"], **more["extra_body"]}
        stream = await cast("Any", client.responses).create(
            model="m", input="Weather?", instructions="Be brief.", **more
        )
        events = [event async for event in stream]
    assert [
        event.response.instructions
        for event in events
        if "response." in event.type and hasattr(event, "response")
    ] == ["Be brief."] * 3
    assert events[0].model_extra == {"memory_hits": []}
    assert "Likes tables." in chats.came.body["instructions"]
    first = events[-1].response
    assert first.output[1].name == "weather"
    chats.upstream.reply = says("Sunny.")
    result = [{"type": "function_call_output", "call_id": "call_1", "output": "21 degrees"}]
    second = await responded(chats, result, who, previous_response_id=first.id)
    third = await responded(chats, "ok", who, previous_response_id=second.id)
    for _ in range(2):  # the second time a retry
        await responded(chats, "ok", who, previous_response_id=third.id)
    said = [
        ("user", "Weather?"),
        ("assistant", "Let me\n\nlook."),
        ("tool", "21 degrees"),
        ("assistant", "Sunny."),
    ]
    ok = [("user", "ok"), ("assistant", "Sunny.")]
    assert await chats.stored(who["memory_id"]) == [*said, *ok, *ok]


async def test_a_conversation_sent_as_items_stores_each_turn_once(chats: Chats, who: dict[str, Any]) -> None:
    items: list[Any] = []
    for text in ("Hi", "Where?", "Hi"):
        items.append({"role": "user", "content": [{"type": "input_text", "text": text}]})
        found = await responded(chats, items, who, store=False)
        items += [{"type": "reasoning", "id": "rs_1", "summary": []}]
        items += [item.model_dump(exclude_none=True) for item in found.output]
    said = [
        (role, text)
        for text in ("Hi", "Where?", "Hi")
        for role, text in (("user", text), ("assistant", "Hello there."))
    ]
    assert await chats.stored(who["memory_id"]) == said


@pytest.mark.parametrize(
    "system",
    [None, "Be brief.", [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]],
)
async def test_a_message_is_given_memory_behind_the_callers_system_blocks(
    chats: Chats, session: str, user: str, system: Any
) -> None:
    await chats.remembers(user, "Likes tables.", "Ann keeps nine bees.")
    asked: dict[str, Any] = {} if system is None else {"system": system}
    async with claude(chats) as client:
        found = await cast("Any", client.messages).create(
            model="m",
            max_tokens=10,
            messages=[{"role": "user", "content": "My bees?"}],
            metadata={"user_id": user},
            extra_body={"memory_id": session},
            **asked,
        )
    assert [block.type for block in found.content] == ["thinking", "text"]
    assert found.model_extra == {"memory_hits": []}
    *own, stable, changing = chats.came.body["system"]
    assert own == (
        [] if system is None else [{"type": "text", "text": system}] if isinstance(system, str) else system
    )
    assert "Likes tables." in stable["text"]
    assert "Ann keeps nine bees." in changing["text"]
    assert chats.came.body["messages"] == [{"role": "user", "content": "My bees?"}]
    rows = await chats.rows(session)
    assert [(row["role"], row["content"], row["user_id"]) for row in rows] == [
        ("user", "My bees?", user),
        ("assistant", "Hello there.", None),
    ]


async def test_a_streamed_message_thinks_calls_a_tool_and_goes_on_with_its_thoughts_untouched(
    chats: Chats, session: str, user: str
) -> None:
    chats.upstream.reply = says("Let me", "\n\n", "look.", tool_calls=[CALL])
    asked: Any = {
        "model": "m",
        "max_tokens": 10,
        "tools": [{"name": "weather", "input_schema": {"type": "object"}}],
        "metadata": {"user_id": user},
        "extra_body": {"memory_id": session},
    }
    said: list[Any] = [{"role": "user", "content": "Weather?"}]
    async with claude(chats) as client:
        async with client.messages.stream(messages=said, **asked) as stream:
            first = await stream.get_final_message()
        blocks = [block.model_dump(exclude_none=True) for block in first.content]
        assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use"]
        assert blocks[0] == THOUGHT
        result = {
            "type": "tool_result",
            "tool_use_id": "call_1",
            "content": [{"type": "text", "text": "21 degrees"}],
        }
        said += [{"role": "assistant", "content": blocks}, {"role": "user", "content": [result]}]
        chats.upstream.reply = says("Sunny.")
        await client.messages.create(messages=said, **asked)
    assert chats.came.body["messages"] == said
    assert await chats.stored(session) == [
        ("user", "Weather?"),
        ("assistant", "Let me\n\nlook."),
        ("tool", "21 degrees"),
        ("assistant", "Sunny."),
    ]


@pytest.mark.parametrize("path", ["responses", "messages"])
async def test_what_names_no_memory_passes_byte_for_byte(chats: Chats, path: str) -> None:
    body = b'{ "model":"m",\n "instructions":"Be brief.","max_tokens": 1, "messages":[], "input":[], "stream": true }'
    async with httpx2.AsyncClient() as client:
        answer = await client.post(f"{chats.url}/v1/{path}", content=body)
    assert chats.came.raw == body
    assert b"memory_hits" not in answer.content
    assert answer.status_code == 200


async def test_an_error_of_the_gateway_is_read_by_anthropics_client(chats: Chats, session: str) -> None:
    async with claude(chats) as client:
        with pytest.raises(BadRequestError, match="memory_top_k is not valid"):
            await client.messages.create(
                model="m",
                max_tokens=1,
                messages=[{"role": "user", "content": "Hi"}],
                extra_body={"memory_top_k": -1},
            )


@pytest.mark.slow
async def test_the_example_of_the_vercel_ai_sdk_streams_an_answer_with_memory(
    chats: Chats, session: str, user: str
) -> None:
    folder = ROOT / "examples" / "vercel-ai-sdk"
    await install(folder)
    await chats.remembers(user, "The boat Gaivota is due on 9 March.")
    chats.upstream.reply = says("On ", "9 March.")
    question = "When is the boat due?"
    gateway = {"EDEN_GATEWAY": f"{chats.url}/v1", "OPENAI_API_KEY": CALLERS_KEY}
    code, said = await node("chat.mjs", user, session, question, cwd=folder, **gateway)
    assert (code, said) == (0, "On 9 March.\n")
    assert "Gaivota" in chats.came.body["instructions"]
    assert await chats.stored(session) == [("user", question), ("assistant", "On 9 March.")]
