"""One user's many and large messages: while they are read, every door goes on answering others.

Measured is the CPU time that the event loop's thread takes between two ticks: other work on the machine does not
count, nor does that of the thread which redacts and compares texts.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from eden_memory.context import recent_message_store, written_message_store
from eden_memory.settings import Settings
from tests.integration.gateway.gateway_kit import behind, chats_of
from tests.integration.system.every_door import HEADERS, Asker, EveryDoor, every_door
from tests.integration.system.running_system import AGENT, System, fast, system
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers
MOST_MILLISECONDS = 50.0
TRIES = 3
"""A pause that the code makes is made each time; one of the machine's (a cold cache, another process) is not."""
LARGE = {"500 kB": (100, 500_000), "8 kB": (200, 8_000)}
KEY = "AKIA" + "IOSFODNN7EXAMPLE"
QUESTION = "Do you remember what I said about the greyhound on Sunday?"


@pytest.fixture(autouse=True)
def however_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, too: answers would rather lack what is not formed yet than wait for it."""
    monkeypatch.setattr(recent_message_store, "MOST_SECONDS", 60.0)
    monkeypatch.setattr(written_message_store, "MOST_MILLISECONDS", 60_000)


@pytest.fixture(scope="module")
async def doors(shared_settings: Settings, shared_models: Serving) -> AsyncGenerator[EveryDoor]:
    """The doors of a namespace in which nothing runs: no message is formed."""
    async with (
        system(fast(shared_settings, shared_models), shared_models, run=False) as at,
        every_door(at) as every,
        chats_of(_searching(at.settings, every), every.chats.upstream) as chats,
    ):
        opened = replace(every, chats=chats)
        await at.source["messages"].create_index([("user_id", 1), ("created_at", -1), ("_id", -1)])
        await at.source["messages"].create_index([("session_id", 1), ("created_at", -1)])
        user = "small"
        asker = Asker(await at.session(user), user)
        await at.write(await at.session(user), user, "We adopted a greyhound on Sunday.")
        for ask in _doors(opened, asker).values():  # models and indexes are loaded with the first question
            await ask()
        yield opened


@pytest.mark.parametrize("size", LARGE)
@pytest.mark.parametrize(
    "parts", [pytest.param(False, id="text", marks=pytest.mark.slow), pytest.param(True, id="parts")]
)
async def test_no_door_keeps_the_event_loop(doors: EveryDoor, size: str, parts: bool) -> None:
    for door in _doors(doors, Asker()):
        pauses: list[float] = []
        while len(pauses) < TRIES and (not pauses or pauses[-1] > MOST_MILLISECONDS):
            user = f"{door}-{size}-{parts}-{len(pauses)}".replace(" ", "-")
            pauses.append(await _pause_at(doors, door, user, size, parts=parts))
        assert min(pauses) <= MOST_MILLISECONDS, f"{door}: {pauses} ms"


async def _pause_at(doors: EveryDoor, door: str, user: str, size: str, *, parts: bool) -> float:
    """The loop's longest pause, in milliseconds, while a door answers a user whose messages nothing has read."""
    asker = Asker(await doors.running.session(user), user)
    await _says_much(doors.running, user, *LARGE[size], parts=parts)
    async with longest_pause() as pause:
        said = await _doors(doors, asker)[door]()
    assert "greyhound" in said, door
    assert KEY not in said, door
    return pause.milliseconds


async def test_a_large_chat_does_not_keep_the_event_loop(doors: EveryDoor) -> None:
    """The client and the provider, which encode and decode the chat, too, are in the same thread."""
    asker = Asker(await doors.running.session("chatty"), "chatty")
    texts = [*(_long(20_000, seed) for seed in range(50)), f"{_long(4_000_000, 50)} {QUESTION}"]
    async with longest_pause() as pause:
        await _chat(doors, asker, *texts)
    sent = [str(one["content"]) for one in doors.chats.came.messages]
    assert [text for text in sent if text in set(texts)] == texts
    assert pause.milliseconds <= 2 * MOST_MILLISECONDS, f"{pause.milliseconds:.0f} ms"


def _searching(settings: Settings, every: EveryDoor) -> Settings:
    """The gateway with a search for each turn."""
    placed = behind(settings, every.chats.upstream.openai_url, AGENT)
    return placed.model_copy(update={"memory": settings.memory})


def _doors(doors: EveryDoor, asker: Asker) -> dict[str, Callable[[], Awaitable[str]]]:
    """Each way to ask that reads messages which are not formed yet."""
    root, given = f"/v1/agents/{AGENT}", asker.given

    async def context() -> str:
        return (await doors.http.get(f"{root}/context", params=given)).text

    async def recall() -> str:
        return (await doors.http.get(f"{root}/context", params={**given, "message": QUESTION})).text

    async def search() -> str:
        return (await doors.http.post(f"{root}/search", json={"queries": [QUESTION]}, params=given)).text

    async def why() -> str:
        return (await doors.http.get(f"{root}/why", params={**given, "text": "greyhound Sunday"})).text

    async def mcp() -> str:
        asked = {"name": "get_memory_context", "arguments": given}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": asked}
        return (await doors.http.post("/mcp", content=json.dumps(body), headers=HEADERS)).text

    async def gateway() -> str:
        await _chat(doors, asker, QUESTION)
        return str([one for one in doors.chats.came.messages if one["role"] != "user"])

    return {
        "context": context,
        "recall": recall,
        "search": search,
        "why": why,
        "mcp": mcp,
        "gateway": gateway,
    }


async def _chat(doors: EveryDoor, asker: Asker, *texts: str) -> None:
    await doors.chats.say(*texts, user=asker.user, memory_id=asker.session)
    await doors.chats.gateway.keeping.idle()


async def _says_much(at: System, user: str, count: int, size: int, *, parts: bool) -> None:
    """Messages in another session, the newest of them about the greyhound."""
    session, now = await at.session(user), datetime.now(UTC)
    for number in range(count):
        text = _long(size, number)
        if number == count - 1:
            text = f"We adopted a greyhound on Sunday. The key is {KEY}. {text}"
        row: dict[str, Any] = {"_id": f"{session}-{number}", "session_id": session, "role": "user"}
        content = [{"type": "text", "text": half} for half in (text[: size // 2], text[size // 2 :])]
        row |= {"user_id": user, "content": content if parts else text}
        await at.source["messages"].insert_one(row | {"created_at": now - timedelta(seconds=count - number)})


def _long(size: int, seed: int) -> str:
    """Words and addresses: no two texts are the same, and every detector has to look."""
    random = Random(seed)
    words = [f"word{random.randrange(10**6)}" for _ in range(90)]
    words += [f"https://example.org/{random.getrandbits(128):x}" for _ in range(10)]
    return " ".join(words * (size // 900 + 1))[:size]


class Pause:
    """The longest that the event loop's thread computed without a tick."""

    milliseconds = 0.0


@asynccontextmanager
async def longest_pause() -> AsyncGenerator[Pause]:
    """Measure for the block, by CPU time of this thread."""
    pause = Pause()

    async def tick() -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            now = time.thread_time()
            pause.milliseconds, last = max(pause.milliseconds, (now - last) * 1e3), now

    ticking = asyncio.create_task(tick())
    try:
        await asyncio.sleep(0.01)
        yield pause
    finally:
        ticking.cancel()
