"""The whole of formation against a model server: throughput, calls, tokens, CPU, delay of a window.

`python -m tests.bench.formation [--sessions N] [--each N]`; `HOT=1` asks for one hot scope instead. Private servers,
all stages in one process as `eden run` starts it, the model server in another. Workload: 20 sessions of 90
messages, user and assistant alternating, 28 words on average, every user message with one marker, which the
server returns as a fact; 2 user reflections and 1 session reflection per window.
"""

import argparse
import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
from pydantic import SecretStr
from pymongo import AsyncMongoClient

from eden_memory.mongo.client import connect
from eden_memory.mongo.memory.memory_feed import memory_feed
from eden_memory.mongo.setup.setup import set_up
from eden_memory.runtime.contract.topic_admin import apply_topics
from eden_memory.runtime.contract.topics import load_topics
from eden_memory.runtime.kafka import admin_config, client_kwargs
from eden_memory.runtime.usage_feed import usage_feed
from eden_memory.settings import KafkaSettings, MongoSettings, Settings
from schemas.events import ModelCalled
from tests.bench.bare_clients import Work, bare_cpu
from tests.bench.formation_load import conversations, hot, place_of, staggered
from tests.bench.formation_work import commands_so_far, work_of
from tests.bench.report import Report, Row, percentile
from tests.model_server.script import MARK
from tests.model_server.serving import ModelServerProcess, model_server_process
from tests.servers import TestServers, running_servers

COMMAND = (sys.executable, "-m", "eden_memory.cli.main", "run")
WINDOW, QUIET_SECONDS, MOST_SECONDS = 45, 15.0, 300.0
CALLS, TOKENS, CPU, RATE, DELAY, HOT_RATE = 85.0, 200_000.0, 1.0, 200.0, 150.0, 10.0
"""The targets: per 1,000 messages, messages a second, ms, facts a second."""
NOTHING_MORE: Mapping[str, str] = {}
HOT_WINDOW = 4
PACE = 100.0
"""Messages a second of the run that measures delays: windows of a session do not overlap."""


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

    def delays(self) -> list[tuple[float, float]]:
        """For every window its delay and the time of its calls on the longest way, seconds."""
        found: list[tuple[float, float]] = []
        for name, (session, place) in self.windows.items():
            ends = list(self.reflections.get(name, ()))
            ends += [at for marker, at in self.markers.items() if _window(marker) == (session, place)]
            if ends and name in self.opened:
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

    @property
    def database(self) -> Any:
        return self.mongo[self.settings.mongodb.database]


@asynccontextmanager
async def stand(
    servers: TestServers, models: ModelServerProcess, more: Mapping[str, str]
) -> AsyncGenerator[Stand]:
    """A namespace of its own with its topics; `more` settings of the process."""
    name = f"bench{uuid4().hex[:8]}"
    settings = Settings(
        mongodb=MongoSettings(uri=SecretStr(servers.mongodb_uri), database=name),  # pyright: ignore[reportCallIssue]
        kafka=KafkaSettings(  # pyright: ignore[reportCallIssue]
            bootstrap=servers.kafka_bootstrap, topic_prefix=f"{name}.", group_prefix=f"{name}."
        ),
    )
    environment = {
        "EDEN_MONGODB_URI": servers.mongodb_uri,
        "EDEN_MONGODB_DATABASE": name,
        "EDEN_KAFKA_BOOTSTRAP": servers.kafka_bootstrap,
        "EDEN_KAFKA_TOPIC_PREFIX": f"{name}.",
        "EDEN_KAFKA_GROUP_PREFIX": f"{name}.",
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
    async with connect(settings.mongodb, servers.mongodb_uri) as mongo:
        await set_up(mongo[name], settings.names)
        yield Stand(settings, environment, client_kwargs(settings.kafka, servers.kafka_bootstrap), mongo)


@contextmanager
def running(made: Stand, log: Path) -> Generator[psutil.Process]:
    """All stages in one process, once they say that they are ready."""
    port = _free_port()
    environment = {**os.environ, **made.environment, "EDEN_HTTP_PORT": str(port)}
    with (
        log.open("wb") as file,
        subprocess.Popen(COMMAND, env=environment, stdout=file, stderr=file) as started,
    ):
        process = psutil.Process(started.pid)
        try:
            _wait_ready(started, port, log)
            yield process
        finally:
            started.terminate()
            started.wait(60)


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


def _wait_ready(started: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if started.poll() is not None:
            raise SystemExit(f"eden run ended with {started.returncode}:\n{log.read_text()[-3000:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    raise SystemExit(f"not ready within 60 s:\n{log.read_text()[-3000:]}")


@dataclass(frozen=True)
class Run:
    """One run over all messages."""

    messages: int
    seconds: float
    cpu: float
    formed: Formed
    counts: Mapping[str, Any]
    work: Work


async def run(
    servers: TestServers,
    models: ModelServerProcess,
    load: Sequence[dict[str, Any]],
    pace: float | None,
    more: Mapping[str, str] = NOTHING_MORE,
) -> Run:
    """Write everything (at a pace, or at once), and watch until all of it is formed."""
    markers = sum(1 for one in load if MARK.search(one["content"]))
    formed = Formed(markers)
    with tempfile.TemporaryDirectory() as folder:
        async with stand(servers, models, more) as made:
            with running(made, Path(folder) / "run.log") as process:
                await _until_followed(made)
                models.change(reset=True)
                commands = await commands_so_far(made.mongo)
                before = process.cpu_times()
                async with _watching(made, formed):
                    began = time.time()
                    await _write(made, load, pace)
                    await _until_formed(formed)
                after = process.cpu_times()
                cpu = after.user + after.system - before.user - before.system
                counts, client = models.counts(), (made.mongo, made.client)
                work = await work_of(made.settings, *client, commands, counts, models.openai_url, markers)
            return Run(len(load), formed.ended - began, cpu, formed, counts, work)


async def _write(made: Stand, load: Sequence[dict[str, Any]], pace: float | None) -> None:
    began, written, left = time.monotonic(), 0, iter(load)
    while batch := list(islice(left, 500 if pace is None else 5)):
        await made.database["messages"].insert_many(batch)
        written += len(batch)
        if pace is not None:
            await asyncio.sleep(max(0.0, began + written / pace - time.monotonic()))


async def _until_followed(made: Stand) -> None:
    """Until the tailer follows: what it reads in before has other times, and so other windows."""
    until = time.monotonic() + MOST_SECONDS
    while await made.database[made.settings.names["positions"]].find_one({"phase": "stream"}) is None:
        if time.monotonic() > until:
            raise SystemExit("the tailer does not follow")
        await asyncio.sleep(0.1)


async def _until_formed(formed: Formed) -> None:
    """Until it is complete, or nothing has come for so long: then what is missing shows in the figures."""
    began = formed.moved = time.time()
    while not formed.complete and time.time() - formed.moved < QUIET_SECONDS:
        if time.time() - began > MOST_SECONDS:
            return
        await asyncio.sleep(0.05)
    await asyncio.sleep(1.0)


@asynccontextmanager
async def _watching(made: Stand, formed: Formed) -> AsyncGenerator[None]:
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
        for task in tasks:
            task.cancel()


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


def describe(report: Report, name: str, seconds: float, one: Run) -> None:
    """What a burst says: throughput, calls, tokens, CPU, markers lost."""
    thousand = one.messages / 1_000
    chats = sum(
        one.counts["calls"].get(kind, 0) for kind in ("facts", "decisions", "reflections", "consolidation")
    )
    found = {
        "messages_per_s": one.messages / one.seconds,
        "calls_per_1000": chats / thousand,
        "prompt_tokens_per_1000": one.counts["input_tokens"] / thousand,
        "cpu_s_per_1000": one.cpu / thousand,
        "markers_lost": one.formed.expected - len(one.formed.markers),
    }
    report.results |= {f"{name}_{key}": value for key, value in found.items()}
    chain = _longest_chain(one, seconds)
    report.bounds[f"{name}_longest_session_per_s"] = chain
    report.rows += [
        Row(f"throughput, calls of {seconds:.1f} s", found["messages_per_s"], "messages/s", RATE, "target"),
        Row("LLM calls per 1,000 messages", found["calls_per_1000"], "calls", CALLS, "target"),
        Row("prompt tokens per 1,000", found["prompt_tokens_per_1000"], "tokens", TOKENS, "target"),
        Row("CPU per 1,000, all stages", found["cpu_s_per_1000"], "s", CPU, "target"),
        Row("markers lost", found["markers_lost"], "markers"),
    ]
    if chain:
        report.ratios[f"{name}_of_longest_session"] = found["messages_per_s"] / chain
        report.rows.append(
            Row(
                "throughput again",
                found["messages_per_s"],
                "messages/s",
                chain,
                "the longest session's calls",
            )
        )


def describe_bare(report: Report, name: str, one: Run, bare: Mapping[str, float]) -> None:
    """CPU beside that of the clients alone, for the same calls, commands and records."""
    thousand = one.messages / 1_000
    whole = sum(bare.values()) / thousand
    report.bounds |= {f"{name}_bare_{client}_cpu_s_per_1000": cpu / thousand for client, cpu in bare.items()}
    report.ratios[f"{name}_cpu_of_bare_clients"] = one.cpu / thousand / whole
    did = one.work
    commands = sum(did.commands.values()) / thousand
    report.rows += [
        Row("CPU again", one.cpu / thousand, "s", whole, "provider, MongoDB and Kafka clients alone"),
        Row("MongoDB commands per 1,000", commands, "commands"),
        Row("records per 1,000, as read by groups", did.deliveries / thousand, "records"),
    ]


def _longest_chain(one: Run, seconds: float) -> float:
    """What nothing could beat: a session's windows one after the other, each with two calls."""
    if not seconds:
        return 0.0
    windows: dict[int, int] = {}
    for session, _ in one.formed.windows.values():
        windows[session] = windows.get(session, 0) + 1
    return one.messages / ((max(windows.values()) + 1) * seconds)


def describe_delays(report: Report, one: Run) -> None:
    """Delay of windows in a paced run."""
    delays = one.formed.delays()
    beyond = [(delay - calls) * 1_000 for delay, calls in delays]
    report.results |= {
        "delay_p50_s": percentile([delay for delay, _ in delays], 0.5),
        "delay_p99_s": percentile([delay for delay, _ in delays], 0.99),
        "beyond_calls_p50_ms": percentile(beyond, 0.5),
        "beyond_calls_p99_ms": percentile(beyond, 0.99),
    }
    report.rows += [
        Row(
            "delay of a window, p50",
            report.results["delay_p50_s"],
            "s",
            median_calls(delays),
            "its calls, p50",
        ),
        Row(
            "delay of a window, p99",
            report.results["delay_p99_s"],
            "s",
            median_calls(delays),
            "its calls, p50",
        ),
        Row("delay minus its calls, p50", report.results["beyond_calls_p50_ms"], "ms", DELAY, "target"),
        Row("delay minus its calls, p99", report.results["beyond_calls_p99_ms"], "ms"),
    ]


def median_calls(delays: Sequence[tuple[float, float]]) -> float:
    """Seconds of a window's calls, the median."""
    return percentile([calls for _, calls in delays], 0.5)


async def measure(sessions: int, each: int) -> Report:
    """Three runs over the same conversations."""
    report = Report("formation", f"formation of {sessions * each:,} messages in one process")
    load = list(conversations(sessions, each))
    with (
        tempfile.TemporaryDirectory() as folder,
        running_servers({}, Path(folder), Path(".eden/jars")) as servers,
        model_server_process(base_seconds=1.0) as models,
    ):
        describe(report, "slow", 1.0, await run(servers, models, load, None))
        paced = staggered(load, sessions, WINDOW)
        describe_delays(report, await run(servers, models, paced, PACE))
        models.change(base_seconds=0.0)
        fast = await run(servers, models, load, None)
        describe(report, "fast", 0.0, fast)
        describe_bare(report, "fast", fast, await bare_cpu(fast.work))
    return report


async def measure_hot(sessions: int) -> Report:
    """One agent, many sessions: half of the facts go to the one scope of the agent."""
    report = Report("formation-hot", f"one hot scope, {sessions:,} sessions, calls of 1 s + 5 ms a token")
    load = list(conversations(sessions, HOT_WINDOW))
    more = {"EDEN_WINDOWS_MESSAGES": str(HOT_WINDOW)}
    script = "tests.bench.formation_load:hot_script"
    with (
        tempfile.TemporaryDirectory() as folder,
        running_servers({}, Path(folder), Path(".eden/jars")) as servers,
        model_server_process(script, base_seconds=1.0, token_seconds=0.005) as models,
    ):
        done = await run(servers, models, load, None, more)
    agents = [at for marker, at in done.formed.markers.items() if hot(marker)]
    others = [at for marker, at in done.formed.markers.items() if not hot(marker)]
    first = min(done.formed.markers.values())
    report.results = {
        "hot_facts_per_s": len(agents) / (max(agents) - first),
        "other_facts_per_s": len(others) / (max(others) - first),
        "markers_lost": done.formed.expected - len(done.formed.markers),
    }
    report.bounds = {"target_facts_per_s": HOT_RATE}
    report.rows = [
        Row("facts of the hot scope", report.results["hot_facts_per_s"], "facts/s", HOT_RATE, "target"),
        Row("facts of the other scopes", report.results["other_facts_per_s"], "facts/s"),
        Row("markers lost", report.results["markers_lost"], "markers"),
    ]
    report.ratios = {
        "hot_of_target": report.results["hot_facts_per_s"] / HOT_RATE,
        "others_of_hot": report.results["other_facts_per_s"] / report.results["hot_facts_per_s"],
    }
    return report


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int)
    parser.add_argument("--each", type=int, default=90)
    parser.add_argument("--hot", action="store_true", help="one hot scope, 1,000 sessions or --sessions")
    given = parser.parse_args()
    if given.hot:
        asyncio.run(measure_hot(given.sessions or 1_000)).show()
    else:
        asyncio.run(measure(given.sessions or 20, given.each)).show()


if __name__ == "__main__":
    main()
