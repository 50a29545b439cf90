"""Contexts: warm, cold, of a heavy user, from a write to what another process shows of it, and withdrawn ones.

`python -m tests.bench.context [--reads N] [--writes N] [--mongodb URI]`: a private MongoDB unless one is named; a
table for people and one JSON object as the last line.

Bounds come from the same run: a bare find of the same snapshots beside the session's document, by the same driver;
a bare change stream in the process that waits for the fresh context; and a bare find of the newest message, asked as
often as the context that is to show it. A user's context is made of full scopes: blobs at their word limits, buffers
of twice their threshold, 40 facts in each scope that holds any.
"""

import argparse
import asyncio
import random
import re
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, cast
from uuid import uuid4

from pydantic import SecretStr
from pymongo import AsyncMongoClient
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.access.visible import Asker
from eden_memory.api.service import MemoryService
from eden_memory.assembly.mongo_setup import set_up
from eden_memory.limits import DEFAULTS
from eden_memory.local.mongo import LocalMongo
from eden_memory.mongo.client import connect
from eden_memory.mongo.documents import row_of
from eden_memory.schemas.documents import BufferedReflection, RecentFact, Snapshot
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import MongoSettings, SessionsSettings, Settings
from tests.bench import context_withdrawals, heavy_user
from tests.bench.report import Report, Row, median, percentile
from tests.unit.context.parts import stored_snapshot

WARM_TARGET, COLD_TARGET, FRESH_TARGET = 0.2, 5.0, 100.0
"""Milliseconds: warm, cold at p95, fresh at p99."""
SCOPES = (
    Scope.of_agent("s.a"),
    Scope.of_user("s.a", "s.ada"),
    Scope.of_session("s.a", "s.one", ("s.ada",)),
    Scope.of_shard("s.a", "billing"),
)
GROUP = Scope.of_group("s.a", "s.g")
CHILD = "--child"
Client = AsyncMongoClient[dict[str, Any]]
Database = AsyncDatabase[dict[str, Any]]
Written = Literal["version", "recent"]
"""A new version of a blob, or a message that is not formed yet."""


def snapshot(scope: Scope, blob: str | None = None) -> Snapshot:
    """A full one."""
    limits, now = DEFAULTS[scope.kind], datetime.now(UTC)
    text = "remembered " * limits.blob_words
    buffer = tuple(
        BufferedReflection(reflection_id=f"r{number}", content="insight " * 20, formed_at=now, said_at=now)
        for number in range(2 * limits.threshold)
    )
    facts = tuple(
        RecentFact(fact_id=f"f{n}", version=1, content="fact " * 20, formed_at=at, valid_from=at)
        for n, at in ((n, now - timedelta(hours=n)) for n in range(40))
    )
    return stored_snapshot(
        scope,
        blob=blob or text,
        buffer=buffer,
        recent_facts=() if scope.kind == "session" else facts,
        changed_at=now,
    )


@asynccontextmanager
async def stand(settings: Settings) -> AsyncGenerator[Client]:
    """A database with one session of one user, and one whose users have a group."""
    async with connect(_uri(settings)) as client:
        database = client[settings.mongodb.database]
        await set_up(database, settings.names)
        rows = [row_of(snapshot(scope)) for scope in (*SCOPES, GROUP)]
        stream = {"_id": "s.a/shard/billing", "agent_id": "s.a", "scope": "shard", "shard": "billing"}
        await database["memory_snapshots"].insert_many(rows)
        await database["memory_streams"].insert_one(stream)
        await database["sessions"].insert_many(
            [
                {"_id": "one", "agent_id": "a", "users": ["ada"]},
                {"_id": "two", "agent_id": "a", "users": ["ada"]},
                {"_id": "grouped", "agent_id": "a", "users": ["ada"], "group_id": "g"},
            ]
        )
        try:
            yield client
        finally:
            await client.drop_database(settings.mongodb.database)


async def warm(service: MemoryService, reads: int, session: str = "one", user: str = "ada") -> list[float]:
    """Milliseconds of each read."""
    await service.ready()
    async with asyncio.timeout(60):
        while not service.memory.contexts.cache.hears:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await service.get_memory_context(session, user)
    taken: list[float] = []
    for _ in range(reads):
        start = time.perf_counter()
        await service.get_memory_context(session, user)
        taken.append((time.perf_counter() - start) * 1e3)
    return taken


async def cold(service: MemoryService, session: str, reads: int, user: str = "ada") -> list[float]:
    """Milliseconds of each read with nothing kept."""
    taken: list[float] = []
    for _ in range(reads):
        service.memory.contexts.cache.clear()
        start = time.perf_counter()
        assert await service.get_memory_context(session, user)
        taken.append((time.perf_counter() - start) * 1e3)
    return taken


async def looked_up(service: MemoryService, reads: int) -> dict[str, list[float]]:
    """Milliseconds of each look for messages that are not formed yet, of the heavy and of the light user."""
    recent = (await service.memory.current()).recent
    asked = {user: Asker("s.a", f"s.{user}", f"s.{user}") for user in heavy_user.MESSAGES}
    views = {user: await service.memory.contexts.view(asked[user]) for user in asked}
    taken: dict[str, list[float]] = {user: [] for user in asked}
    for number in range(-20, reads):
        for user, each in taken.items():
            start = time.perf_counter()
            found = await recent.shown(asked[user], views[user])
            assert len(found.messages) > 1
            each.extend([(time.perf_counter() - start) * 1e3] if number >= 0 else [])
    return taken


async def bare_finds(client: Client, settings: Settings, reads: int) -> list[float]:
    """Milliseconds of the same query beside the session's document, handed over as it comes."""
    database = client[settings.mongodb.database]
    keys = [scope.key for scope in SCOPES if scope.kind != "session"]
    query = {"$or": [{"_id": {"$in": keys}}, {"session_id": {"$in": ["s.one"]}}]}
    taken: list[float] = []
    for _ in range(reads):
        start = time.perf_counter()
        found, session = await asyncio.gather(
            database["memory_snapshots"].find(query).to_list(),
            database["sessions"].find_one({"_id": "one"}),
        )
        taken.append((time.perf_counter() - start) * 1e3)
        assert len(found) == len(SCOPES)
        assert session
    return taken


async def fresh(
    client: Client, settings: Settings, writes: int, what: Written = "version"
) -> tuple[list[float], list[float]]:
    """Milliseconds from the acknowledged write to the context that shows it, and to what bounds that."""
    arguments = (CHILD, settings.mongodb.database, _uri(settings), str(writes), what)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.context", *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    dice, committed = random.Random(1), list[int]()
    database = client[settings.mongodb.database]
    for number in range(writes):
        await WRITERS[what](database, number)
        committed.append(time.monotonic_ns())
        await asyncio.sleep(dice.uniform(0.01, 0.1))
    seen: dict[str, dict[int, int]] = {"fresh": {}, "event": {}}
    async for line in process.stdout:
        how, number, moment = line.decode().split()
        seen[how].setdefault(int(number), int(moment))
    await process.wait()
    return _delays(seen["fresh"], committed), _delays(seen["event"], committed)


async def _write_blob(database: Database, number: int) -> None:
    changed = {"$set": {"blob": f"version {number};"}}
    await database["memory_snapshots"].update_one({"_id": SCOPES[1].key}, changed)


async def _write_message(database: Database, number: int) -> None:
    """In another session of the user's, as an application does."""
    said = {"role": "user", "user_id": "ada", "content": f"recent {number};", "created_at": datetime.now(UTC)}
    await database["messages"].insert_one({"_id": f"m{number}", "session_id": "two", **said})


WRITERS: dict[Written, Callable[[Database, int], Awaitable[None]]] = {
    "version": _write_blob,
    "recent": _write_message,
}


def _delays(seen: dict[int, int], committed: list[int]) -> list[float]:
    """A version that was overtaken counts as seen with the next."""
    delays: list[float] = []
    moment = 0
    for number in range(len(committed) - 1, -1, -1):
        moment = seen.get(number, moment)
        delays.append(max(moment - committed[number], 0) / 1e6)
    return delays


async def child(database: str, uri: str, writes: int, what: Written) -> None:
    """Another process: says when it first has a context of each write, and when the bound knew of it."""
    settings = _settings(uri, database)
    async with connect(uri) as client, MemoryService("a", settings=settings) as service:
        await service.ready()
        messages = client[database]["messages"]
        async with await client[database]["memory_snapshots"].watch(full_document="updateLookup") as stream:
            print("ready", flush=True)  # noqa: T201
            events = _events(stream, writes) if what == "version" else _finds(messages, writes)
            telling = asyncio.create_task(events)
            last = -1
            while last < writes - 1:
                context = await service.get_memory_context("one", "ada")
                number = max(map(int, re.findall(rf"{what} (\d+);", context)), default=-1)
                if number > last:
                    print("fresh", number, time.monotonic_ns(), flush=True)  # noqa: T201
                    last = number
                await asyncio.sleep(0.001)
            await telling


async def _finds(messages: AsyncCollection[dict[str, Any]], writes: int) -> None:
    """Ask for the newest message as often as the answer comes."""
    last = -1
    while last < writes - 1:
        found = await messages.find_one({"session_id": "two"}, sort=[("created_at", -1)])
        number = int(found["content"].split()[1].rstrip(";")) if found else -1
        if number > last:
            print("event", number, time.monotonic_ns(), flush=True)  # noqa: T201
            last = number
        await asyncio.sleep(0.001)


async def _events(stream: Any, writes: int) -> None:
    async for event in stream:
        number = int(event["updateDescription"]["updatedFields"]["blob"].split()[1].rstrip(";"))
        print("event", number, time.monotonic_ns(), flush=True)  # noqa: T201
        if number == writes - 1:
            return


async def main(settings: Settings, reads: int, writes: int) -> Report:
    """All figures."""
    report = Report("context", "contexts: milliseconds")
    async with stand(settings) as client:
        await heavy_user.put(client[settings.mongodb.database])
        async with MemoryService("a", client=client, settings=settings) as service:
            warm_reads = await warm(service, reads * 20)
            of_heavy = await warm(service, reads * 20, heavy_user.HEAVY, heavy_user.HEAVY)
            heavy = await cold(service, heavy_user.HEAVY, reads, heavy_user.HEAVY)
            looking = await looked_up(service, reads)
            await cold(service, "one", 50)
            cold_reads = await cold(service, "one", reads)
            grouped = await cold(service, "grouped", reads)
            finds = await bare_finds(client, settings, reads)
        fresh_reads, events = await fresh(client, settings, writes)
        shown, found = await fresh(client, settings, writes, "recent")
        await context_withdrawals.measure(report, client, _uri(settings), writes)
    few_of = median(looking[heavy_user.HEAVY]), median(looking[heavy_user.LIGHT])
    bare, told = percentile(finds, 0.95), percentile(events, 0.99)
    report.rows[:0] = [
        Row("warm read, p50", median(warm_reads), "ms", median(finds), "bare find, p50"),
        Row("warm read, p99", percentile(warm_reads, 0.99), "ms", WARM_TARGET, "target"),
        Row("warm read of a heavy user, p99", percentile(of_heavy, 0.99), "ms", WARM_TARGET, "target"),
        Row("<Recent> of 2,000 messages looked up, p50", few_of[0], "ms", few_of[1], "of 10 messages"),
        Row("cold read of a heavy user, p95", percentile(heavy, 0.95), "ms", bare, "bare find, p95"),
        Row("cold read, p50", median(cold_reads), "ms", median(finds), "bare find of the same, p50"),
        Row("cold read, p95", percentile(cold_reads, 0.95), "ms", bare, "bare find of the same, p95"),
        Row("cold read, p95", percentile(cold_reads, 0.95), "ms", COLD_TARGET, "target"),
        Row("cold read with a group, p95", percentile(grouped, 0.95), "ms", COLD_TARGET, "target"),
        Row(
            "write → fresh elsewhere, p50",
            median(fresh_reads),
            "ms",
            median(events),
            "bare change stream, p50",
        ),
        Row(
            "write → fresh elsewhere, p99",
            percentile(fresh_reads, 0.99),
            "ms",
            told,
            "bare change stream, p99",
        ),
        Row("write → fresh elsewhere, p99", percentile(fresh_reads, 0.99), "ms", FRESH_TARGET, "target"),
        Row("insert → <Recent> elsewhere, p50", median(shown), "ms", median(found), "bare find, p50"),
        Row("insert → <Recent> elsewhere, p99", percentile(shown, 0.99), "ms", FRESH_TARGET, "target"),
    ]
    report.results |= {
        "warm_p50_ms": median(warm_reads),
        "warm_p99_ms": percentile(warm_reads, 0.99),
        "warm_heavy_p99_ms": percentile(of_heavy, 0.99),
        "recent_looked_up_p50_ms": few_of[0],
        "cold_heavy_p95_ms": percentile(heavy, 0.95),
        "cold_p50_ms": median(cold_reads),
        "cold_p95_ms": percentile(cold_reads, 0.95),
        "cold_grouped_p95_ms": percentile(grouped, 0.95),
        "fresh_p50_ms": median(fresh_reads),
        "fresh_p99_ms": percentile(fresh_reads, 0.99),
        "recent_p50_ms": median(shown),
        "recent_p99_ms": percentile(shown, 0.99),
    }
    report.bounds |= {"find_p50_ms": median(finds), "find_p95_ms": bare, "event_p99_ms": told}
    report.ratios = {
        "cold_over_find_p50": median(cold_reads) / median(finds),
        "cold_over_find_p95": percentile(cold_reads, 0.95) / bare,
        "recent_2000_over_10": few_of[0] / few_of[1],
    }
    return report


def _settings(uri: str, database: str) -> Settings:
    return Settings(
        mongodb=MongoSettings(uri=SecretStr(uri), database=database),  # pyright: ignore[reportCallIssue]
        sessions=SessionsSettings(collection="sessions"),
    )


def _uri(settings: Settings) -> str:
    assert settings.mongodb.uri is not None
    return settings.mongodb.uri.get_secret_value()


def _given(uri: str | None, stack: ExitStack) -> str:
    if uri is not None:
        return uri
    server = LocalMongo(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "mongodb")
    server.start()
    stack.callback(server.stop)
    return server.endpoint


if __name__ == "__main__":
    if sys.argv[1:2] == [CHILD]:
        asyncio.run(child(sys.argv[2], sys.argv[3], int(sys.argv[4]), cast("Written", sys.argv[5])))
        sys.exit()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reads", type=int, default=1_000)
    parser.add_argument("--writes", type=int, default=500)
    parser.add_argument("--mongodb", help="a server to use in place of a private one")
    arguments = parser.parse_args()
    with ExitStack() as servers:
        chosen = _settings(_given(arguments.mongodb, servers), f"bench{uuid4().hex[:8]}")
        figures = asyncio.run(main(chosen, arguments.reads, arguments.writes))
    figures.show()
