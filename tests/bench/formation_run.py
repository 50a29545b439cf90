"""One run of all stages over a conversation, as a process of its own against a model server, and what it did."""

import asyncio
import math
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
from pydantic import SecretStr
from pymongo import AsyncMongoClient

from eden_memory.assembly.mongo_setup import set_up
from eden_memory.kafka.connection import admin_config, client_kwargs
from eden_memory.kafka.topic_admin import apply_topics
from eden_memory.kafka.topics import load_topics
from eden_memory.local import server
from eden_memory.mongo.client import connect
from eden_memory.observability.watching import memory_feed, usage_feed
from eden_memory.schemas.events import ModelCalled
from eden_memory.settings import KafkaSettings, MongoSettings, Settings
from eden_memory.tasks import end
from tests.bench.bare_clients import Work
from tests.bench.formation_load import place_of
from tests.bench.formation_work import commands_so_far, work_of
from tests.model_server.script import MARK
from tests.model_server.serving import ModelServerProcess
from tests.servers import TestServers

COMMAND = ("-m", "eden_memory.cli.main", "run")
WINDOW, QUIET_SECONDS, MOST_SECONDS = 45, 15.0, 300.0
NOTHING_MORE: Mapping[str, str] = {}
PARTITIONS = "EDEN_KAFKA_PARTITIONS"


@dataclass
class Formed:
    """What one run was seen to form; times are of this process's clock."""

    expected: int
    markers: dict[str, float] = field(default_factory=dict[str, float])
    reflections: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """Formation → when its reflections were there."""
    windows: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Formation → session, place among its windows."""
    opened: dict[str, float] = field(default_factory=dict[str, float])
    calls: list[ModelCalled] = field(default_factory=list[ModelCalled])
    moved: float = 0.0

    @property
    def complete(self) -> bool:
        """All markers are facts, and every window has its three reflections."""
        formed = sum(len(times) for times in self.reflections.values())
        return len(self.markers) >= self.expected and formed >= 3 * len(self.windows) > 0

    @property
    def ended(self) -> float:
        """When the last of it was there."""
        return max([*self.markers.values(), *(time for times in self.reflections.values() for time in times)])

    def delays(self, began: float = 0.0, ended: float = math.inf) -> list[tuple[float, float]]:
        """For every window that was under way in a time its delay, and its calls on the longest way; seconds."""
        found: list[tuple[float, float]] = []
        for name, (session, place) in self.windows.items():
            ends = list(self.reflections.get(name, ()))
            ends += [at for marker, at in self.markers.items() if _window(marker) == (session, place)]
            if ends and name in self.opened and began <= max(ends) and self.opened[name] <= ended:
                found.append((max(ends) - self.opened[name], self._longest(name, session, max(ends))))
        return found

    def _longest(self, name: str, session: int, end: float) -> float:
        """Extraction, then the longer of reflections and decisions (with embeddings)."""
        own = [one for one in self.calls if one.formation_id == name and one.outcome == "answered"]
        extraction = sum(one.seconds for one in own if one.stage == "fact-extraction")
        reflection = sum(one.seconds for one in own if one.stage == "reflection-extraction")
        began = self.opened[name]
        scope = f"user:s.default:s.user-{session:04d}"
        decisions = sum(
            one.seconds
            for one in self.calls
            if one.stage == "fact-dedup" and one.scope == scope and began <= one.started_at.timestamp() <= end
        )
        return extraction + max(reflection, decisions)


def _window(marker: str) -> tuple[int, int]:
    session, index = place_of(marker)
    return session, index // WINDOW


@dataclass
class Stand:
    """One run's names and connections."""

    settings: Settings
    environment: dict[str, str]
    client: dict[str, Any]
    mongo: AsyncMongoClient[dict[str, Any]]
    code: Path | None = None
    """Another checkout, set up as this one, whose program runs."""

    @property
    def database(self) -> Any:
        return self.mongo[self.settings.mongodb.database]


def of_known_size(models: ModelServerProcess) -> dict[str, str]:
    """Return settings with which the model server is asked as OpenAI is: half of all places from the beginning.

    An endpoint whose size is not known begins with two calls at once, so most windows of the first minute would wait
    for a place. That says how such an endpoint is tried out, and nothing of the pipeline.
    """
    return {
        "EDEN_LLM": "openai",
        "EDEN_EMBEDDER": "openai",
        "OPENAI_BASE_URL": models.openai_url,
        "OPENAI_API_KEY": "benchmark",
    }


@asynccontextmanager
async def stand(
    servers: TestServers, models: ModelServerProcess, more: Mapping[str, str], code: Path | None = None
) -> AsyncGenerator[Stand]:
    """A namespace of its own with its topics; `more` settings of the process, which runs the `code` of a checkout."""
    name = f"bench{uuid4().hex[:8]}"
    settings = Settings(
        mongodb=MongoSettings(uri=SecretStr(servers.mongodb_uri), database=name),  # pyright: ignore[reportCallIssue]
        kafka=KafkaSettings(  # pyright: ignore[reportCallIssue]
            bootstrap=servers.kafka_bootstrap,
            topic_prefix=f"{name}.",
            group_prefix=f"{name}.",
            partitions=int(more[PARTITIONS]) if PARTITIONS in more else None,
        ),
    )
    environment = {
        "EDEN_MONGODB_URI": servers.mongodb_uri,
        "EDEN_MONGODB_DATABASE": name,
        "EDEN_KAFKA_BOOTSTRAP": servers.kafka_bootstrap,
        "EDEN_KAFKA_TOPIC_PREFIX": f"{name}.",
        "EDEN_KAFKA_GROUP_PREFIX": f"{name}.",
        "EDEN_MEMORY_SHARING": "team",
        "EDEN_TAILER_WATERMARK_SECONDS": "1",
        "EDEN_LLM": models.openai_url,
        "EDEN_EMBEDDER": models.openai_url,
        "EDEN_MODELS_FAST": "test-model",
        "EDEN_MODELS_FREE": "test-model",
        "EDEN_MODELS_PAID": "test-model",
        "EDEN_MODELS_EMBEDDINGS": "test-embedding",
        "EDEN_MODELS_AT_ONCE": "256",
        "EDEN_API_KEY": "benchmark",
        **more,
    }
    config = admin_config(settings.kafka, servers.kafka_bootstrap)
    await asyncio.to_thread(apply_topics, config, load_topics(settings.kafka))
    async with connect(servers.mongodb_uri) as mongo:
        await set_up(mongo[name], settings.names)
        yield Stand(
            settings, environment, client_kwargs(settings.kafka, servers.kafka_bootstrap), mongo, code
        )


@contextmanager
def all_running(made: Stand, folder: Path, processes: int) -> Generator[list[psutil.Process]]:
    """So many processes with all stages, once each of them holds partitions."""
    with ExitStack() as stack:
        logs = [folder / f"run.{number}.log" for number in range(processes)]
        yield [stack.enter_context(running(made, log)) for log in logs]


@contextmanager
def running(made: Stand, log: Path, *parts: str) -> Generator[psutil.Process]:
    """All parts in one process, or those named, once they say that they are ready."""
    port = server.choose()
    environment = {**os.environ, **made.environment, "EDEN_HTTP_PORT": str(port)}
    python = sys.executable if made.code is None else str(made.code / ".venv/bin/python")
    with (
        log.open("wb") as file,
        subprocess.Popen(
            (python, *COMMAND, *parts), env=environment, stdout=file, stderr=file, cwd=made.code
        ) as started,
    ):
        process = psutil.Process(started.pid)
        try:
            _wait_ready(started, port, log)
            yield process
        finally:
            started.terminate()
            started.wait(60)


def _wait_ready(started: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if started.poll() is not None:
            raise SystemExit(f"eden run ended with {started.returncode}:\n{log.read_text()[-3000:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2):
                return
        except OSError:
            time.sleep(0.02)
    raise SystemExit(f"not ready within 60 s:\n{log.read_text()[-3000:]}")


def cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU time that a process has taken so far."""
    times = process.cpu_times()
    return times.user + times.system


def busy_seconds(process: psutil.Process) -> float:
    """Return how long a process's event loop has worked or waited for a core so far (the scheduler's own count)."""
    working, waiting, _ = Path(f"/proc/{process.pid}/schedstat").read_text().split()
    return (int(working) + int(waiting)) / 1e9


@dataclass(frozen=True)
class Run:
    """One run over all messages; `cpu` and `busy` (with waiting for a core) in seconds of all processes."""

    messages: int
    seconds: float
    cpu: float
    busy: float
    formed: Formed
    counts: Mapping[str, Any]
    work: Work


Writes = Callable[[Stand, Sequence[dict[str, Any]], float | None], Awaitable[None]]
"""Writes messages as an application does, at a pace."""


async def run(
    servers: TestServers,
    models: ModelServerProcess,
    load: Sequence[dict[str, Any]],
    pace: float | None,
    more: Mapping[str, str] = NOTHING_MORE,
    *,
    writes: Writes | None = None,
    processes: int = 1,
    code: Path | None = None,
) -> Run:
    """Write everything (at a pace, or at once), and watch until all of it is formed."""
    writes = writes or write
    markers = sum(1 for one in load if MARK.search(one["content"]))
    formed = Formed(markers)
    with tempfile.TemporaryDirectory() as folder:
        async with stand(servers, models, more, code) as made:
            with all_running(made, Path(folder), processes) as started:
                await until_followed(made)
                models.change(reset=True)
                commands = await commands_so_far(made.mongo)
                before, busy = sum(map(cpu_seconds, started)), sum(map(busy_seconds, started))
                async with watching(made, formed):
                    began = time.time()
                    await writes(made, load, pace)
                    await until_formed(formed)
                cpu = sum(map(cpu_seconds, started)) - before
                busy = sum(map(busy_seconds, started)) - busy
                counts, client = models.counts(), (made.mongo, made.client)
                work = await work_of(made.settings, *client, commands, counts, models.openai_url, markers)
            return Run(len(load), formed.ended - began, cpu, busy, formed, counts, work)


async def write(made: Stand, load: Sequence[dict[str, Any]], pace: float | None) -> None:
    """As an application writes, in the order given; `pace`: messages a second."""
    began, written, left = time.monotonic(), 0, iter(load)
    while batch := list(islice(left, 500 if pace is None else 5)):
        await made.database["messages"].insert_many(batch)
        written += len(batch)
        if pace is not None:
            await asyncio.sleep(max(0.0, began + written / pace - time.monotonic()))


async def until_followed(made: Stand) -> None:
    """Until the tailer follows: what it reads in before has other times, and so other windows."""
    until = time.monotonic() + MOST_SECONDS
    while await made.database[made.settings.names["positions"]].find_one({"phase": "stream"}) is None:
        if time.monotonic() > until:
            raise SystemExit("the tailer does not follow")
        await asyncio.sleep(0.1)


async def until_formed(formed: Formed) -> None:
    """Until it is complete, or nothing more has come for so long: then what is missing shows in the figures."""
    began = formed.moved = time.time()
    while not formed.complete and (not formed.windows or time.time() - formed.moved < QUIET_SECONDS):
        if time.time() - began > MOST_SECONDS:
            return
        await asyncio.sleep(0.05)
    await asyncio.sleep(1.0)


@asynccontextmanager
async def watching(made: Stand, formed: Formed) -> AsyncGenerator[None]:
    """Take down what is formed, while it lasts."""
    topic = made.settings.kafka.topic_prefix + "memory.usage"
    async with (
        memory_feed(made.database, made.settings.names) as memory,
        usage_feed(made.client, topic) as calls,
        asyncio.TaskGroup() as group,
    ):

        async def notice() -> None:
            async for change in memory:
                _notice(formed, change.collection, change.document)

        async def count() -> None:
            async for call in calls:
                formed.calls.append(call)

        tasks = [group.create_task(notice()), group.create_task(count())]
        yield
        await end(tasks)


def _notice(formed: Formed, collection: str, row: Mapping[str, Any]) -> None:
    now = formed.moved = time.time()
    match collection:
        case "facts":
            for marker in MARK.findall(row["content"]):
                formed.markers.setdefault(marker, now)
        case "reflections" if row.get("content") and row.get("formation_id"):
            times = formed.reflections.setdefault(row["formation_id"], [])
            if not row.get("absorbed"):
                times.append(now)
        case "windows" if row["_id"] not in formed.windows:
            session = int(row["session_id"].rpartition("-")[2])
            formed.windows[row["_id"]] = session, row["seq"] - 1
            formed.opened[row["_id"]] = now
        case _:
            pass
