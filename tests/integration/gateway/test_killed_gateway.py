"""`eden serve` killed while turns go through the inbox: no turn is lost, none is stored twice."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from eden_memory.local import server
from eden_memory.mongo.client import connect
from eden_memory.settings import Settings
from eden_memory.source.messages_store import inbox_name
from tests.integration.gateway.gateway_kit import replies, turns
from tests.integration.source.harness import _environment  # pyright: ignore[reportPrivateUsage]
from tests.integration.system.running_system import prepare, stages, until
from tests.model_server.chat_upstream import ChatUpstream, Reply

pytestmark = pytest.mark.servers
SESSION = "c9"
QUESTION, ANSWER, NEXT, SECOND = "I live in Porto.", "Noted.", "How do I get to Faro?", "By train."


class Serve:
    """A gateway in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.process, self.url = process, url

    async def say(self, *texts: str) -> str:
        """The assistant's words."""
        body = {"model": "m", "messages": turns(*texts), "memory_id": SESSION, "user": "rui"}
        async with httpx2.AsyncClient(timeout=60) as client:
            answer = await client.post(f"{self.url}/v1/chat/completions", json=body)
        return answer.json()["choices"][0]["message"]["content"]

    async def kill(self) -> None:
        """As `kill -9`."""
        self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def serve(settings: Settings, upstream: ChatUpstream, folder: Path) -> AsyncGenerator[Serve]:
    """`eden serve`, once it is ready."""
    port = server.choose()
    environment = {
        **os.environ,
        **_environment(settings),
        "EDEN_SERVE_PORT": str(port),
        "EDEN_GATEWAY_UPSTREAM": upstream.openai_url,
        "EDEN_MEMORY_RECALL": "off",
    }
    with (folder / f"{port}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "eden_memory.cli.main", "serve",
            env=environment, cwd=folder, stdout=log, stderr=log,
        )  # fmt: skip
        served = Serve(process, f"http://127.0.0.1:{port}")
        try:
            await until(lambda: _ready(served.url), "it is ready")
            yield served
        finally:
            if process.returncode is None:
                await served.kill()


async def _ready(url: str) -> bool:
    try:
        async with httpx2.AsyncClient() as client:
            return (await client.get(f"{url}/readyz")).status_code == 200
    except httpx2.TransportError:
        return False


@pytest.mark.parametrize(
    "answered",
    [False, pytest.param(True, marks=pytest.mark.slow)],
    ids=["while it answers", "once it has answered"],
)
async def test_a_killed_gateway_neither_loses_nor_doubles_a_turn(
    answered: bool, settings: Settings, provider: ChatUpstream, tmp_path: Path
) -> None:
    quick = settings.model_copy(
        update={
            "tailer": settings.tailer.model_copy(update={"commit_seconds": 0.2, "watermark_seconds": 0.5})
        }
    )
    await prepare(quick)
    assert quick.mongodb.uri is not None
    async with connect(quick.mongodb.uri.get_secret_value()) as client:
        inbox = client[quick.source_database][inbox_name(quick)]
        recorded = client[quick.mongodb.database][quick.names["messages"]]

        async def said() -> list[tuple[str, str]]:
            rows = await recorded.find({"session_id": f"s.{SESSION}"}).sort("created_at").to_list()
            return [(row["role"], row["text"]) for row in rows]

        async def stands(*texts: str) -> bool:
            roles = ("user", "assistant")
            wanted = [(roles[n % 2], text) for n, text in enumerate(texts)]
            return await said() == wanted and await inbox.count_documents({}) == 0

        async with stages(quick, ("formation-trigger",)):
            gate = asyncio.Event()
            provider.reply = replies(
                Reply((ANSWER, ""), gate=gate), Reply((ANSWER if not answered else SECOND,))
            )
            async with serve(quick, provider, tmp_path) as first:
                asked = asyncio.create_task(first.say(QUESTION))
                await until(lambda: stands(QUESTION), "the question is recorded")
                if answered:
                    gate.set()
                    assert await asked == ANSWER
                await first.kill()
                await asyncio.gather(asked, return_exceptions=True)
            async with serve(quick, provider, tmp_path) as second:
                if answered:
                    assert await second.say(QUESTION, ANSWER, NEXT) == SECOND
                    await until(lambda: stands(QUESTION, ANSWER, NEXT, SECOND), "all turns stand once")
                else:
                    assert await second.say(QUESTION) == ANSWER
                    await until(lambda: stands(QUESTION, ANSWER), "both turns stand once")
