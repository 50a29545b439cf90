"""Withdrawn contexts: from the commit of a second user's first message until the first user's memory is not found.

Part of `tests.bench.context`. The bound of the same run is a bare change stream over the messages. context-cache
follows the messages in a process of its own; neither tailer nor formation-trigger runs.
"""

import asyncio
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from pydantic import SecretStr
from pymongo import AsyncMongoClient

from eden_memory.assembly.mongo_setup import set_up
from eden_memory.mongo.client import connect
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import MongoSettings, Settings
from tests.bench.report import Report, Row, median, percentile
from tests.integration.context.harness import Kit
from tests.integration.context.test_ready_contexts import ADA, Stage, changed, keeping

TARGET = 250.0
"""Milliseconds at p99."""


async def measure(report: Report, client: AsyncMongoClient[dict[str, Any]], uri: str, sessions: int) -> None:
    """Add the figures of so many sessions to a report."""
    settings = _settings(uri, f"{report.bench}_withdrawals")
    stage = Stage(Kit(settings, client))
    try:
        await _prepare(stage, sessions)
        async with _keeper(settings.mongodb.database, uri):
            gone, events = await _withdrawals(stage, sessions)
    finally:
        await client.drop_database(settings.mongodb.database)
    late, bare = percentile(gone, 0.99), percentile(events, 0.99)
    what = "new author's message → context withdrawn"
    report.rows += [
        Row(f"{what}, p50", median(gone), "ms", median(events), "bare change stream, p50"),
        Row(f"{what}, p99", late, "ms", bare, "bare change stream, p99"),
        Row(f"{what}, p99", late, "ms", TARGET, "target"),
    ]
    report.results |= {"withdrawn_p50_ms": median(gone), "withdrawn_p99_ms": late}
    report.bounds |= {"message_event_p50_ms": median(events), "message_event_p99_ms": bare}


async def _prepare(stage: Stage, sessions: int) -> None:
    """Build the ready contexts of sessions that no document describes and in which Ada has written."""
    await set_up(stage.kit.database, stage.kit.settings.names)
    await stage.kit.put(ADA, blob="Prefers trains.")
    for number in range(sessions):
        await stage.says(f"n{number}", "ada")
    scopes = (Scope.of_session("s.a", f"s.n{number}", ("s.ada",)) for number in range(sessions))
    await stage.cache([changed(scope) for scope in scopes])


@asynccontextmanager
async def _keeper(database: str, uri: str) -> AsyncGenerator[None]:
    """Run what withdraws contexts in another process."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.context_withdrawals", database, uri),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        assert await process.stdout.readline() == b"ready\n"
        yield
    finally:
        process.stdin.close()
        await process.wait()


async def _withdrawals(stage: Stage, sessions: int) -> tuple[list[float], list[float]]:
    """Return milliseconds from each new author's message to the withdrawal, and to a bare stream's event."""
    gone, events = list[float](), list[float]()
    async with await stage.kit.database["messages"].watch() as stream:
        for number in range(sessions):
            assert "trains" in (await stage.found(f"n{number}", "ada") or "")
            await stage.says(f"n{number}", "bob")
            committed = time.perf_counter()
            event, withdrawn = await asyncio.gather(_event(stream), _withdrawn(stage, f"n{number}"))
            events.append((event - committed) * 1e3)
            gone.append((withdrawn - committed) * 1e3)
    return gone, events


async def _event(stream: Any) -> float:
    await stream.next()
    return time.perf_counter()


async def _withdrawn(stage: Stage, session: str) -> float:
    while "trains" in (await stage.found(session, "ada") or ""):  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    return time.perf_counter()


async def _keep(database: str, uri: str) -> None:
    """Withdraw contexts until the standard input ends."""
    settings = _settings(uri, database)
    async with connect(uri) as client, keeping(Stage(Kit(settings, client))):
        print("ready", flush=True)  # noqa: T201
        await asyncio.to_thread(sys.stdin.read)


def _settings(uri: str, database: str) -> Settings:
    return Settings(mongodb=MongoSettings(uri=SecretStr(uri), database=database))  # pyright: ignore[reportCallIssue]


if __name__ == "__main__":
    asyncio.run(_keep(sys.argv[1], sys.argv[2]))
