"""Whatever one request or one document holds costs that one alone: the next request is served, the rest is shown."""

# ruff: noqa: RUF001 - texts of other scripts

import asyncio
import json
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from urllib.parse import urlencode

import pytest
from bson import ObjectId

from eden_memory.context import recent_message_store, written_message_store
from eden_memory.errors import EdenError
from eden_memory.settings import AgentsSettings, GatewaySettings, MemorySettings
from tests.integration.context.harness import kit_for
from tests.integration.doors.conftest import Doors, doors_of, namespaced
from tests.integration.doors.mcp_door import SENT
from tests.integration.doors.odd_inputs import (
    TEXTS,
    TOKEN,
    OddRequest,
    chats,
    http_requests,
    mcp_calls,
    pages,
    written,
)
from tests.integration.source.odd_documents import FIELDS, VALUES, raw
from tests.integration.source.odd_documents import written as put
from tests.model_server.chat_upstream import served
from tests.servers import TestServers

pytestmark = pytest.mark.servers
AT_ONCE = 8
SAID = "We adopted a greyhound named Pixel on Sunday."
KEY = "AKIA" + "IOSFODNN7EXAMPLE"
HIDDEN = "\u200e \u061c \u2028 \x85 \x9b \U000e0101 \U000e0041"
"""A reader does not see it, and a context does not show it."""


@pytest.fixture(autouse=True)
def however_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, too: answers would rather lack what is not formed yet than wait for it."""
    monkeypatch.setattr(recent_message_store, "MOST_SECONDS", 30.0)
    monkeypatch.setattr(written_message_store, "MOST_MILLISECONDS", 30_000)


async def indifferent(scope: Any, receive: Any, send: Any) -> None:
    """A provider that gives the same answer to everything."""
    while (await receive()).get("more_body"):
        pass
    choice = {"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": written({"id": "c", "choices": [choice]})})


@pytest.fixture(scope="module")
async def gateway() -> AsyncGenerator[GatewaySettings]:
    async with served(indifferent) as url:
        yield GatewaySettings(upstream=f"{url}/v1", memory_seconds=60)  # pyright: ignore[reportCallIssue]


@pytest.fixture(scope="module")
async def doors(servers: TestServers, gateway: GatewaySettings) -> AsyncGenerator[Doors]:
    """Doors without keys, so that whoever asks may ask for everything."""
    settings = namespaced(
        servers, gateway=gateway, memory=MemorySettings(recent=False), agents=AgentsSettings(default="s.a")
    )
    async with kit_for(settings) as kit:
        try:
            await kit.session("s1", ("ada",))
            await kit.session("s2", ("ada",))
            async with doors_of(kit) as doors:
                yield doors
        finally:
            await kit.client.drop_database(settings.mongodb.database)


@pytest.fixture(params=[0.3, pytest.param(1.0, marks=pytest.mark.slow)], ids=["some", "all"])
def share(request: pytest.FixtureRequest) -> float:
    """How many of all requests are made; `some` are the same every time, a dozen odd values for each place."""
    return request.param


def drawn(asked: Iterable[Any], share: float) -> list[Any]:
    """These requests, or a share of them."""
    every = list(asked)
    return random.Random(1).sample(every, int(len(every) * share))


async def refused(asked: Iterable[Any], ask: Callable[[Any], Awaitable[str | None]]) -> list[str]:
    """Ask, some at the same time; return what went wrong."""
    waiting, wrong = iter(asked), list[str]()
    while some := list(islice(waiting, AT_ONCE)):
        found = await asyncio.gather(*map(ask, some))
        wrong += [what for what in found if what is not None]
    return wrong


async def serves(doors: Doors) -> None:
    """The doors still answer."""
    answer = await doors.http.get("/v1/agents/a/context?user=ada")
    assert answer.status_code in (200, 204)


async def test_whatever_the_http_api_is_asked_it_answers_or_refuses(doors: Doors, share: float) -> None:
    async def ask(odd: OddRequest) -> str | None:
        headers = {"content-type": "application/json"} if odd.body is not None else {}
        answer = await doors.http.request(odd.method, odd.path, content=odd.body, headers=headers)
        return f"{answer.status_code} {odd}" if answer.status_code >= 500 else None

    assert await refused(drawn(http_requests(), share), ask) == []
    await serves(doors)


async def test_whatever_a_model_gives_a_tool_it_gets_a_sentence(doors: Doors, share: float) -> None:
    headers = {**SENT, "x-eden-agent": "a"}

    async def ask(call: Any) -> str | None:
        body = written({"jsonrpc": "2.0", "id": 1, **call})
        answer = await doors.http.post("/mcp", content=body, headers=headers)
        told = answer.text
        broken = answer.status_code >= 500 or "log says why" in told
        return f"{answer.status_code} {body[:200]!r}: {told[:300]}" if broken else None

    assert await refused(drawn(mcp_calls(), share), ask) == []
    await serves(doors)


async def test_whatever_a_chat_holds_the_provider_gets_it_or_the_caller_is_told(
    doors: Doors, share: float
) -> None:
    async def ask(body: bytes) -> str | None:
        answer = await doors.http.post("/v1/chat/completions", content=body)
        return f"{answer.status_code} {body[:200]!r}" if answer.status_code >= 500 else None

    assert await refused(drawn(chats(), share), ask) == []
    await serves(doors)


async def test_whatever_stands_in_an_address_the_inspector_shows_a_page(doors: Doors, share: float) -> None:
    async def ask(path: str) -> str | None:
        answer = await doors.http.get(path)
        return f"{answer.status_code} {path[:200]}" if answer.status_code >= 500 else None

    async def send(text: str) -> str | None:
        fields = {"text": text, "how": "fact", "version": "1"}
        answer = await doors.http.post(
            "/ui/add?agent=a&user=ada",
            content=urlencode(fields, errors="surrogatepass"),
            headers={"origin": doors.url, "content-type": "application/x-www-form-urlencoded"},
        )
        return f"{answer.status_code} {text[:100]!r}" if answer.status_code >= 500 else None

    assert await refused(drawn(pages(), share), ask) == []
    assert await refused(TEXTS, send) == []
    await serves(doors)


async def test_whatever_the_python_door_gets_it_answers_or_says_what_is_wrong(doors: Doors) -> None:
    service: Any = doors.memory.agent("a")

    async def ask(text: str) -> str | None:
        wrong = list[str]()
        where = {"user": "ada"}
        for name, call in {
            "search": lambda: service.search_facts([text], **where),
            "context": lambda: service.get_memory_context(None, "ada", text),
            "context of": lambda: service.get_memory_context(text, text),
            "add": lambda: service.add(text, **where),
            "word for word": lambda: service.add(text, verbatim=True, **where),
            "pin": lambda: service.pin("user:s.a:s.ada", text, **where),
            "start": lambda: service.on_session_start(text, text),
            "stream": lambda: service.set_stream(text, extraction_guidance=text),
            "export": lambda: doors.memory.export_user(text),
            "forget": lambda: service.forget("message", text, **where),
            "edit": lambda: service.edit("f-1", text, **where),
            "history": lambda: service.history(text, **where),
            "why": lambda: service.why(text, **where),
            "list": lambda: service.list_facts(cursor=text, **where),
            "end": lambda: service.on_session_end(text),
        }.items():
            try:
                await call()
            except EdenError:
                pass
            except Exception as error:  # noqa: BLE001 - what the test looks for
                wrong.append(f"{name} {text[:40]!r}: {type(error).__name__}")
        return "; ".join(wrong) or None

    assert await refused(TEXTS, ask) == []
    await serves(doors)


async def test_one_odd_document_costs_no_other_its_place_at_any_door(
    servers: TestServers, gateway: GatewaySettings, caplog: pytest.LogCaptureFixture
) -> None:
    """Odd values in every field of messages, sessions, users, groups and the agent, mapped or not."""
    settings = namespaced(servers, gateway=gateway, agents=AgentsSettings(default="s.a"))
    async with kit_for(settings) as kit:
        try:
            await _write(kit)
            async with doors_of(kit) as doors:
                seen = await _everywhere(doors)
        finally:
            await kit.client.drop_database(settings.mongodb.database)
    assert [door for door, text in seen.items() if "greyhound" not in text] == []
    assert not {TOKEN, KEY} & {secret for secret in (TOKEN, KEY) if secret in "".join(seen.values())}
    for door in ("context", "recall", "python"):
        assert not set(HIDDEN.replace(" ", "")) & set(seen[door]), door
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def _write(kit: Any) -> None:
    """What a good chat says, and beside it each odd value: in a message of its own session, and in the good one."""
    now = datetime.now(UTC)
    await kit.session("asked in", ("ann",))
    whole = {"session_id": "told in", "role": "user", "user_id": "ann", "content": "hello", "created_at": now}
    odd = [
        raw({"_id": "told in", "agent_id": "a", "users": ["ann"], "unmapped": VALUES["a short UUID within"]})
    ]
    await put(kit.database["sessions"], odd)
    messages = [
        raw({"_id": ObjectId(), **whole, field: value})
        for field in FIELDS
        if field not in ("user_id", "session_id")
        for value in VALUES.values()
    ]
    for number, value in enumerate(VALUES.values()):
        session = f"odd {number}"
        await put(
            kit.database["sessions"],
            [raw({"_id": session, "agent_id": "a", "users": ["ann"], "unmapped": value})],
        )
        messages.append(raw({"_id": ObjectId(), **whole, "session_id": session, "user_id": value}))
        messages.append(raw({"_id": ObjectId(), **whole, "session_id": value}))
        await put(kit.database["users"], [raw({"_id": f"other {number}", "name": value, "unmapped": value})])
        await put(kit.database["groups"], [raw({"_id": f"group {number}", "members": value, "name": value})])
        waiting = {
            "kind": "added_text",
            "session_id": "told in",
            "user_id": "ann",
            "text": "hi",
            "role": "user",
        }
        await put(
            kit.database["memory_inbox"],
            [
                raw({"_id": ObjectId(), **waiting, "session_id": value}),
                raw({"_id": ObjectId(), **waiting, "text": value}),
                raw({"_id": ObjectId(), **waiting, "unmapped": value}),
                raw({"_id": ObjectId(), "kind": "forget", "what": "message", "target": value}),
            ],
        )
    await put(kit.database["users"], [raw({"_id": "ann", "name": "Ann", "unmapped": VALUES["a short UUID"]})])
    await put(kit.database["agents"], [raw({"_id": "a", "name": "A", "unmapped": VALUES["a short UUID"]})])
    await put(kit.database["messages"], messages)
    content = f"{SAID} {HIDDEN} 凭证为{KEY}，My token is {TOKEN}."
    said = {**whole, "content": content, "created_at": now + timedelta(minutes=1)}
    await kit.database["messages"].insert_one({"_id": "good", **said})


async def _everywhere(doors: Doors) -> dict[str, str]:
    """What each door says of the good message, to its user in another session."""
    where = "user=ann&session=asked%20in"
    question = "What is the greyhound called that we adopted?"
    headers = {**SENT, "x-eden-agent": "a"}
    found = dict[str, str]()
    found["context"] = (await doors.http.get(f"/v1/agents/a/context?{where}")).text
    found["recall"] = (await doors.http.get(f"/v1/agents/a/context?{where}&message={question}")).text
    body = {"queries": [question]}
    found["search"] = (await doors.http.post(f"/v1/agents/a/search?{where}", json=body)).text
    call = {"name": "get_memory_context", "arguments": {"session": "asked in", "user": "ann"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    found["mcp"] = (await doors.http.post("/mcp", content=json.dumps(body), headers=headers)).text
    service = doors.memory.agent("a")
    found["python"] = await service.get_memory_context("asked in", "ann")
    report = await service.explain_search([question], session="asked in", user="ann")
    found["python search"] = str(report.unformed)
    page = await doors.http.get(f"/ui/context?agent=a&{where}")
    found["inspector"] = page.text
    return found
