"""The gateway against the provider itself: what it adds to a chat's first byte, and to each token.

`python -m tests.bench.gateway [--chats N] [--tokens N] [--mongodb URI]`: a private MongoDB unless one is named; a
table for people and one JSON object as the last line.

Provider and gateway are processes of their own. Chats alternate between the two, so both meet the same load: short
ones for the first byte, long streams as fast as they come for the tokens. Every chat through the gateway has memory:
a context of full scopes, both turns stored. It is measured with the search that is on by default (with the local
embedder, for a user with 300 facts and 2,000 messages in the last day), and without it.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import httpx2
import orjson

from eden_memory.access.visible import Asker
from eden_memory.api.service import MemoryService
from eden_memory.limits import RECALLED_FACTS
from eden_memory.search.search_requests import SearchRequest
from eden_memory.settings import Settings
from tests.bench import heavy_user
from tests.bench.context import Client, _given, _settings, _uri, stand  # pyright: ignore[reportPrivateUsage]
from tests.bench.heavy_user import HEAVY
from tests.bench.report import Report, Row, median, percentile

FIRST_TARGET, TOKEN_TARGET = 10.0, 100.0
"""Milliseconds added to the first byte at p95; microseconds added to each token."""
WARM_UP, ROUNDS = 20, 5
DIRECT, PLAIN, OF_HEAVY, SEARCHING = "direct", "", " of a heavy user", " with the search"
SHORT = {PLAIN: "first", OF_HEAVY: "first_heavy", SEARCHING: "first_searching"}
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


class Way(NamedTuple):
    """Where chats go, and who chats."""

    url: str
    user: str = "ada"
    session: str = "one"


@contextmanager
def gateway(settings: Settings, provider: str, recall: str) -> Generator[str]:
    """The gateway before a provider."""
    with process(
        GATEWAY,
        EDEN_MONGODB_URI=_uri(settings),
        EDEN_MONGODB_DATABASE=settings.mongodb.database,
        EDEN_SESSIONS_COLLECTION="sessions",
        EDEN_GATEWAY_UPSTREAM=f"{provider}/v1",
        EDEN_AGENTS_DEFAULT="s.a",
        EDEN_MEMORY_RECALL=recall,
        EDEN_EMBEDDER="local",
    ) as url:
        yield url


async def streamed(client: httpx2.AsyncClient, way: Way, model: str, number: int) -> tuple[float, float, int]:
    """(seconds to the first byte, seconds from there to the last, bytes) of one chat; each says something else."""
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": asking(number)}]}
    content = orjson.dumps({**body, "memory_id": way.session, "user": way.user})
    start, first, size = time.perf_counter(), 0.0, 0
    async with client.stream("POST", f"{way.url}/v1/chat/completions", content=content) as response:
        assert response.status_code == 200
        async for part in response.aiter_raw():
            first = first or time.perf_counter()
            size += len(part)
    return first - start, time.perf_counter() - first, size


def asking(number: int) -> str:
    """What a chat says, and searches for."""
    return f"Who repairs the wooden bicycle in Porto number {number}?"


@asynccontextmanager
async def client_of() -> AsyncGenerator[httpx2.AsyncClient]:
    """Connections that are kept."""
    async with httpx2.AsyncClient(timeout=60, trust_env=False) as client:
        yield client


async def measure(ways: Mapping[str, Way], chats: int, tokens: int) -> Report:
    """All figures but those of the search alone; `chats` for the first byte, streams of `tokens` for each token."""
    firsts: dict[str, list[float]] = {name: [] for name in ways}
    each: dict[str, list[float]] = {DIRECT: [], PLAIN: []}
    async with client_of() as client:
        for number in range(-WARM_UP, chats):
            for name, way in ways.items():
                seconds, _, _ = await streamed(client, way, "tokens-1", number)
                firsts[name].extend([seconds * 1e3] if number >= 0 else [])
        for number in range(ROUNDS):
            for name, taken in each.items():
                _, seconds, _ = await streamed(client, ways[name], f"tokens-{tokens}", 10**6 + number)
                taken.append(seconds / tokens * 1e6)
    return _report(firsts, each[DIRECT], each[PLAIN])


async def searched_alone(client: Client, settings: Settings, searches: int) -> float:
    """Median milliseconds of embedding and searching what a chat says, in a process that does nothing else."""
    asked = Asker("s.a", f"s.{HEAVY}", f"s.{HEAVY}")
    local = settings.model_copy(update={"embedder": "local"})
    taken: list[float] = []
    async with MemoryService("a", client=client, settings=local) as service:
        await service.ready()
        readers = await service.memory.current()
        view = await readers.contexts.view(asked)
        scopes = [shown.scope for shown in view.shown if shown.snapshot.active_facts]
        async with readers.searching.engine() as engine:
            for number in range(-WARM_UP, searches):
                request = SearchRequest(
                    (asking(number),),
                    RECALLED_FACTS,
                    "hybrid",
                    asked_at=datetime.now(UTC),
                    related=True,
                    private=view.private,
                )
                start = time.perf_counter()
                report = await engine.find(scopes, request)
                taken.extend([(time.perf_counter() - start) * 1e3] if number >= 0 else [])
                assert {"embedding", "semantic", "text"} <= {stage.name for stage in report.stages or ()}
    return median(taken)


def _report(firsts: Mapping[str, list[float]], bare_tokens: list[float], tokens: list[float]) -> Report:
    report = Report("gateway", "the gateway, against the provider itself")
    bare = {share: percentile(firsts[DIRECT], share) for share in (0.5, 0.95)}
    token, bare_token = median(tokens), median(bare_tokens)
    for name, taken in firsts.items():
        if name == DIRECT:
            continue
        for share, own in bare.items():
            first, at = percentile(taken, share), f"p{share * 100:.0f}"
            report.rows.append(Row(f"first byte{name}, {at}", first, "ms", own, f"the provider itself, {at}"))
            target = (
                (FIRST_TARGET, "target") if share > 0.5 and name == PLAIN else (own, "the provider itself")
            )
            report.rows.append(Row(f"added to the first byte{name}, {at}", first - own, "ms", *target))
            short = f"{SHORT[name]}_p{share * 100:.0f}"
            report.results |= {f"{short}_ms": first, f"{short.replace('_p', '_added_p')}_ms": first - own}
    report.rows += [
        Row("a token of a stream", token, "µs", bare_token, "the provider itself"),
        Row("added to a token", token - bare_token, "µs", TOKEN_TARGET, "target"),
    ]
    report.results |= {"token_us": token, "token_added_us": token - bare_token}
    report.bounds = {
        "direct_first_p50_ms": bare[0.5],
        "direct_first_p95_ms": bare[0.95],
        "direct_token_us": bare_token,
    }
    added = {name: report.results[f"{SHORT[name]}_added_p50_ms"] for name in SHORT}
    report.ratios = {
        "first_p50": median(firsts[PLAIN]) / bare[0.5],
        "token": token / bare_token,
        "first_added_p50": added[PLAIN] / bare[0.5],
        "first_added_heavy_p50": added[OF_HEAVY] / bare[0.5],
    }
    return report


async def main(settings: Settings, chats: int, tokens: int) -> Report:
    """Full contexts in MongoDB, both servers, all figures."""
    async with stand(settings) as client:
        await heavy_user.put(client[settings.mongodb.database])
        with (
            process(PROVIDER) as provider,
            gateway(settings, provider, "off") as plain,
            gateway(settings, provider, "full") as full,
        ):
            ways = {DIRECT: Way(provider), PLAIN: Way(plain), OF_HEAVY: Way(plain, HEAVY, HEAVY)}
            report = await measure({**ways, SEARCHING: Way(full, HEAVY, HEAVY)}, chats, tokens)
        alone = await searched_alone(client, settings, chats)
    added = report.results["first_searching_added_p50_ms"]
    report.rows.append(
        Row("added with the search, p50", added, "ms", alone, "embedding and search alone, p50")
    )
    report.bounds["search_alone_p50_ms"] = alone
    report.ratios["searching_over_alone_p50"] = added / alone
    return report


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
