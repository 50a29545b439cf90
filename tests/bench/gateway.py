"""The gateway against the provider itself: what it adds to a chat's first byte, and to each token.

`python -m tests.bench.gateway [--chats N] [--tokens N] [--mongodb URI]`: a private MongoDB unless one is named; a
table for people and one JSON object as the last line.

Provider and gateway are processes of their own. Chats alternate between the two, so both meet the same load: short
ones for the first byte, long streams as fast as they come for the tokens. Every chat through the gateway has memory:
a context of full scopes, both turns stored; without the search (its embedding is not the gateway's).
"""

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import orjson

from eden_memory.settings import Settings
from tests.bench.context import _given, _settings, _uri, stand  # pyright: ignore[reportPrivateUsage]
from tests.bench.report import Report, Row, median, percentile

FIRST_TARGET, TOKEN_TARGET = 10.0, 100.0
"""Milliseconds added to the first byte at p95; microseconds added to each token."""
WARM_UP, ROUNDS = 20, 5
GATEWAY, PROVIDER = "tests.bench.gateway_process", "tests.model_server.chat_upstream"


@contextmanager
def process(module: str, **environment: str) -> Generator[str]:
    """A server of its own; its address."""
    with subprocess.Popen(
        [sys.executable, "-m", module],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as running:
        assert running.stdout is not None
        try:
            yield running.stdout.readline().strip()
        finally:
            running.terminate()
            running.wait(20)


@contextmanager
def gateway(settings: Settings, provider: str) -> Generator[str]:
    """The gateway before a provider."""
    with process(
        GATEWAY,
        EDEN_MONGODB_URI=_uri(settings),
        EDEN_MONGODB_DATABASE=settings.mongodb.database,
        EDEN_SESSIONS_COLLECTION="sessions",
        EDEN_GATEWAY_UPSTREAM=f"{provider}/v1",
        EDEN_AGENTS_DEFAULT="s.a",
        EDEN_MEMORY_RECALL="off",
    ) as url:
        yield url


async def streamed(client: httpx2.AsyncClient, url: str, model: str, number: int) -> tuple[float, float, int]:
    """(seconds to the first byte, seconds from there to the last, bytes) of one chat; each says something else."""
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": f"Say {number}"}]}
    content = orjson.dumps({**body, "memory_id": "one", "user": "ada"})
    start, first, size = time.perf_counter(), 0.0, 0
    async with client.stream("POST", f"{url}/v1/chat/completions", content=content) as response:
        assert response.status_code == 200
        async for part in response.aiter_raw():
            first = first or time.perf_counter()
            size += len(part)
    return first - start, time.perf_counter() - first, size


@asynccontextmanager
async def client_of() -> AsyncGenerator[httpx2.AsyncClient]:
    """Connections that are kept."""
    async with httpx2.AsyncClient(timeout=60, trust_env=False) as client:
        yield client


async def measure(direct: str, through: str, chats: int, tokens: int) -> Report:
    """All figures; `chats` for the first byte, streams of `tokens` for what each of them costs."""
    firsts: dict[str, list[float]] = {direct: [], through: []}
    async with client_of() as client:
        for number in range(-WARM_UP, chats):
            for url, taken in firsts.items():
                seconds, _, _ = await streamed(client, url, "tokens-1", number)
                taken.extend([seconds * 1e3] if number >= 0 else [])
        each: dict[str, list[float]] = {direct: [], through: []}
        for number in range(ROUNDS):
            for url, taken in each.items():
                _, seconds, _ = await streamed(client, url, f"tokens-{tokens}", 10**6 + number)
                taken.append(seconds / tokens * 1e6)
    return _report(firsts[direct], firsts[through], each[direct], each[through])


def _report(bare: list[float], firsts: list[float], bare_tokens: list[float], tokens: list[float]) -> Report:
    report = Report("gateway", "the gateway, against the provider itself")
    added = [percentile(firsts, share) - percentile(bare, share) for share in (0.5, 0.95)]
    token, bare_token = median(tokens), median(bare_tokens)
    report.rows = [
        Row("first byte, p50", median(firsts), "ms", median(bare), "the provider itself, p50"),
        Row(
            "first byte, p95",
            percentile(firsts, 0.95),
            "ms",
            percentile(bare, 0.95),
            "the provider itself, p95",
        ),
        Row("added to the first byte, p50", added[0], "ms"),
        Row("added to the first byte, p95", added[1], "ms", FIRST_TARGET, "target"),
        Row("a token of a stream", token, "µs", bare_token, "the provider itself"),
        Row("added to a token", token - bare_token, "µs", TOKEN_TARGET, "target"),
    ]
    report.results = {
        "first_p50_ms": median(firsts),
        "first_p95_ms": percentile(firsts, 0.95),
        "first_added_p50_ms": added[0],
        "first_added_p95_ms": added[1],
        "token_us": token,
        "token_added_us": token - bare_token,
    }
    report.bounds = {
        "direct_first_p50_ms": median(bare),
        "direct_first_p95_ms": percentile(bare, 0.95),
        "direct_token_us": bare_token,
    }
    report.ratios = {"first_p50": median(firsts) / median(bare), "token": token / bare_token}
    return report


async def main(settings: Settings, chats: int, tokens: int) -> Report:
    """A full context in MongoDB, both servers, all figures."""
    async with stand(settings):
        with process(PROVIDER) as provider, gateway(settings, provider) as url:
            return await measure(provider, url, chats, tokens)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chats", type=int, default=500)
    parser.add_argument("--tokens", type=int, default=2_000)
    parser.add_argument("--mongodb", help="a server to use in place of a private one")
    arguments: Any = parser.parse_args()
    with ExitStack() as servers:
        chosen = _settings(_given(arguments.mongodb, servers), f"bench{uuid4().hex[:8]}")
        figures = asyncio.run(main(chosen, arguments.chats, arguments.tokens))
    figures.show()
