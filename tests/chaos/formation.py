"""Formation under faults: `eden run`, both servers and the provider are struck while conversations become memory.

`python -m tests.chaos.formation --faults 80 --seed 1 [--folder F]` prints a table and one JSON object, and ends
with 1 when anything was lost, doubled or paid for again. The same seed draws the same faults and conversations;
how they interleave is up to the machine.
"""

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from eden_memory.assembly.mongo_setup import set_up
from eden_memory.kafka.connection import admin_config, client_kwargs
from eden_memory.kafka.groups import GroupAdmin, lags
from eden_memory.kafka.topic_admin import apply_topics
from eden_memory.kafka.topic_reading import TopicOffsets
from eden_memory.kafka.topics import load_topics
from eden_memory.mongo.client import connect
from eden_memory.processors import pipeline
from eden_memory.settings import KafkaSettings, MongoSettings, Settings
from tests.chaos import formation_process
from tests.chaos.command import parser, run_and_show
from tests.chaos.formation_chat import DATABASE, POISON, Chat
from tests.chaos.formation_faults import FormationFaults, plan
from tests.chaos.formation_judging import FORMED, Judged, dead_letters, judge, leaked, returned
from tests.chaos.formation_onlooker import Onlooker
from tests.chaos.formation_process import Place
from tests.chaos.formation_verdict import markers
from tests.chaos.report import Outcome
from tests.chaos.servers import Servers, private_servers
from tests.chaos.stages_reader import Arrivals
from tests.chaos.stages_workers import Workers
from tests.chaos.waiting import NotInTime, cancelled, until
from tests.model_server.serving import ModelServerProcess, model_server_process
from tests.tried_models import passed

SESSION_MS = 3_000
PARTITIONS = 6
PARTS = len(pipeline.NAMES)
MOST_WORKERS = 4
QUIET_SECONDS, SETTLED_SECONDS, LONGEST_SECONDS = 90.0, 5.0, 1_800.0
RULES = [
    {"contains": POISON[0], "fault": "wrong_schema"},
    {"contains": POISON[1], "fault": "error"},
]
COMPACTED = ("memory.formations", *FORMED, "memory.changes", "memory.forgotten")
"""Not `chat.messages`: a reader that lags behind the cleaner may meet a session's end before the second copy of a
message that stood above it (docs/fault-runs.md, formation)."""


@dataclass(frozen=True)
class Options:
    """One run; `pace` in messages a second."""

    faults: int
    seed: int
    workers: int = 2
    pace: float = 8.0
    poisoned: int = 4


@dataclass(frozen=True)
class Scene:
    """Everything that runs."""

    options: Options
    settings: Settings
    servers: Servers
    models: ModelServerProcess
    chat: Chat
    arrivals: Arrivals
    workers: Workers
    faults: FormationFaults
    onlooker: Onlooker
    folder: Path

    @property
    def client(self) -> dict[str, Any]:
        """Of Kafka's clients."""
        return client_kwargs(self.settings.kafka, self.servers.kafka.endpoint)


async def run(options: Options, folder: Path, jars: Path) -> Outcome:
    """Set the scene, strike, wait for quiet, and judge; `folder` keeps data, logs and diaries."""
    violations: dict[str, list[str]] = {}
    began = time.monotonic()
    async with scene(options, folder, jars) as on:
        try:
            await _storm(on)
            stormed = time.monotonic()
            await quiet(on)
        except NotInTime as error:
            stormed = time.monotonic()
            violations["never quiet"] = [str(error)]
        await on.workers.abandon()
        violations["processes"] = on.workers.violations
        violations["leaked"] = sorted(set(on.onlooker.leaked))
        ended = time.monotonic()
        judged = await _judge(on)
        figures: dict[str, object] = {
            "seed": options.seed,
            "seconds": round(time.monotonic() - began),
            "of the storm": round(stormed - began),
            "until quiet": round(ended - stormed),
            **_figures(on),
            **judged.figures,
        }
        return Outcome(violations | judged.violations, figures, dict(on.faults.counts))


@asynccontextmanager
async def scene(options: Options, folder: Path, jars: Path) -> AsyncGenerator[Scene]:
    """Servers, topics, collections, model, application, reader and workers; all gone after the block."""
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(_servers(folder, jars))
        models = stack.enter_context(_models(options.seed))
        settings = _settings(servers)
        await _set_up(settings, servers, models)
        chat = Chat(servers.mongo.endpoint, options.seed, pace=options.pace, poisoned=options.poisoned)
        stack.push_async_callback(chat.close)
        await chat.create()
        arrivals = Arrivals(servers.kafka.endpoint, _topics())
        stack.push_async_callback(cancelled, asyncio.create_task(arrivals.follow()))
        place = Place(environment(servers, models), folder, SESSION_MS)
        workers = Workers(place, options.workers, formation_process.main, PARTS)
        stack.push_async_callback(workers.abandon)
        await workers.start()
        await workers.all_run()

        async def flows() -> None:
            watched = ("memory.facts", "memory.reflections")
            before = {topic: len(arrivals.of[topic]) for topic in watched}
            await until(
                lambda: all(len(arrivals.of[topic]) > before[topic] + 3 for topic in watched),
                "memory is formed after a fault",
                QUIET_SECONDS,
            )

        faults = FormationFaults(
            options.seed, servers, workers, COMPACTED, flows, SESSION_MS / 1_000, most=MOST_WORKERS
        ).with_models(options.seed, models)
        onlooker = Onlooker(chat, settings, options.seed)
        stack.push_async_callback(cancelled, asyncio.create_task(onlooker.look()))
        yield Scene(options, settings, servers, models, chat, arrivals, workers, faults, onlooker, folder)


@asynccontextmanager
async def _servers(folder: Path, jars: Path) -> AsyncGenerator[Servers]:
    """Kafka lets members be missed sooner than by default."""
    properties = {"group.min.session.timeout.ms": "1000"}
    async with private_servers(folder, jars, replica_set=False, properties=properties) as servers:
        yield servers


def _models(seed: int) -> Any:
    return model_server_process(
        "tests.chaos.formation_script:script",
        seed=seed,
        base_seconds=0.3,
        token_seconds=0.001,
        embed_seconds=0.05,
        rules=RULES,
    )


def _settings(servers: Servers) -> Settings:
    return Settings(
        mongodb=MongoSettings(uri=SecretStr(servers.mongo.endpoint), database=DATABASE),  # pyright: ignore[reportCallIssue]
        kafka=KafkaSettings(bootstrap=servers.kafka.endpoint, partitions=PARTITIONS),  # pyright: ignore[reportCallIssue]
    )


def environment(servers: Servers, models: ModelServerProcess) -> dict[str, str]:
    """Small windows, so that there are many; everything else as `eden run` has it, but in more of a hurry."""
    return {
        "EDEN_MONGODB_URI": servers.mongo.endpoint,
        "EDEN_MONGODB_DATABASE": DATABASE,
        "EDEN_KAFKA_BOOTSTRAP": servers.kafka.endpoint,
        "EDEN_MEMORY_SHARING": "team",
        "EDEN_TAILER_LEASE_SECONDS": "3",
        "EDEN_TAILER_COMMIT_SECONDS": "1",
        "EDEN_TAILER_WATERMARK_SECONDS": "2",
        "EDEN_RUN_DRAIN_SECONDS": "6",
        "EDEN_WINDOWS_MESSAGES": "8",
        "EDEN_WINDOWS_LEAST": "3",
        "EDEN_LLM": models.openai_url,
        "EDEN_EMBEDDER": models.openai_url,
        "EDEN_MODELS_FAST": "test-model",
        "EDEN_MODELS_FREE": "test-model",
        "EDEN_MODELS_PAID": "test-model",
        "EDEN_MODELS_EMBEDDINGS": "test-embedding",
        "EDEN_API_KEY": "chaos",
    }


async def _set_up(settings: Settings, servers: Servers, models: ModelServerProcess) -> None:
    """The topics and collections; the model counts as tried, or it could share nothing of what users said."""
    config = admin_config(settings.kafka, servers.kafka.endpoint)
    await asyncio.to_thread(apply_topics, config, load_topics(settings.kafka))
    async with connect(servers.mongo.endpoint) as client:
        await set_up(client[DATABASE], settings.names)
        await passed(client[DATABASE], settings.names, models.openai_url, "test-model")


def _topics() -> dict[str, int]:
    """Everything that stages say."""
    said = ("memory.formations", "memory.extractions", "memory.forgotten", "memory.changes", *FORMED)
    return dict.fromkeys(said, PARTITIONS)


async def _storm(on: Scene) -> None:
    """Conversations flow while the faults strike."""
    names = plan(on.options.seed, on.options.faults)
    over = asyncio.Event()
    talking = asyncio.create_task(on.chat.talk(over))
    try:
        await asyncio.sleep(5.0)
        for number, name in enumerate(names):
            sys.stderr.write(f"{number + 1}/{len(names)} {name}\n")
            await on.faults.strike(name)
    finally:
        await on.faults.calm()
        over.set()
        await talking


async def quiet(on: Scene) -> None:
    """Until everything said has become memory and nobody is behind, as long as anything moves; then all stop."""
    await _remembered(on)
    await _given_up(on)
    await _remembered(on)
    await _settle(on)
    await on.workers.stop()


async def _remembered(on: Scene) -> None:
    began = time.monotonic()
    moved, size = began, -1
    while unfinished := await _unfinished(on):
        if size != (size := sum(map(len, on.arrivals.of.values()))):
            moved = time.monotonic()
        if time.monotonic() - moved > QUIET_SECONDS:
            raise NotInTime(f"nothing moves, and still: {unfinished[:5]}")
        if time.monotonic() - began > LONGEST_SECONDS:
            raise NotInTime(f"records still come after {LONGEST_SECONDS:.0f} s, and still: {unfinished[:5]}")
        await asyncio.sleep(1.0)


async def _given_up(on: Scene) -> None:
    """Until the poisoned windows are dead letters: attempts count only while others succeed."""
    end = time.monotonic() + LONGEST_SECONDS
    while waiting := await dead_letters(on.chat, on.arrivals.of):
        if time.monotonic() > end:
            raise NotInTime(f"not given up: {waiting[:5]}")
        await on.chat.go_on()
        await asyncio.sleep(3.0)


async def _settle(on: Scene) -> None:
    """Until nothing new has come for a while and every group is at its end."""
    end = time.monotonic() + QUIET_SECONDS
    while time.monotonic() < end:
        size = sum(map(len, on.arrivals.of.values()))
        await asyncio.sleep(SETTLED_SECONDS)
        if size == sum(map(len, on.arrivals.of.values())) and not await _behind(on):
            return
    raise NotInTime(f"behind: {await _behind(on)}")


async def _behind(on: Scene) -> dict[str, int]:
    """Groups that have more than transaction markers before them."""
    topics = load_topics(on.settings.kafka)
    groups = {topics.group(name): topics.read_by(name) for name in pipeline.NAMES}
    read = sorted({topic for names in groups.values() for topic in names})
    async with TopicOffsets(on.client, read) as offsets, GroupAdmin(on.client) as admin:
        found = await lags(offsets, admin, groups)
    trigger = topics.group(pipeline.FORMATION_TRIGGER)  # reads the tailer's transactions and watermarks
    return {group: count for group, count in found.items() if count and group != trigger}


async def _unfinished(on: Scene) -> Sequence[str]:
    database, said = on.chat.database, on.chat.messages.values()
    formed: list[dict[str, Any]] = (
        await database["memory_windows"].find({}, {"messages.message_id": 1}).to_list()
    )
    within = {one["message_id"] for row in formed for one in row["messages"]}
    waiting = [one.id for one in said if not one.gone and f"s.{one.id}" not in within]
    if waiting:
        return [f"{name} is in no window" for name in waiting]
    facts: list[dict[str, Any]] = await database["memory_facts"].find({"active": True}).to_list()
    found = markers(facts, said, on.chat.poisoned)
    unfinished = [*found["lost"], *found["doubled"], *found["wrong"], *found["not forgotten"]]
    if unfinished:
        return unfinished
    return [*await returned(on.chat, on.servers.kafka.endpoint, PARTITIONS), *await leaked(on.chat)]


async def _judge(on: Scene) -> Judged:
    return await judge(on.chat, on.arrivals.of, on.servers.kafka.endpoint, on.models, on.folder, PARTITIONS)


def _figures(on: Scene) -> dict[str, object]:
    counts = on.faults.counts
    return {
        "faults": sum(counts.values()),
        "server restarts": sum(
            counts[one] for one in counts if one.startswith(("mongod", "kafka")) and "frozen" not in one
        ),
        "contexts of two authors, ready ones": f"{on.onlooker.looks}, {on.onlooker.ready_seen}",
        "contexts of one user with his own memory": on.onlooker.own_seen,
        "looks that failed": on.onlooker.failed,
        "workers started": on.workers.started,
        "gave up starting, a server was away": on.workers.gave_up_starting,
        "longest stop, s": round(max(on.workers.stop_seconds, default=0.0), 2),
    }


def main(arguments: list[str]) -> int:
    """One run, shown; 0 when nothing was violated."""
    given = parser("formation", __doc__, faults=80).parse_args(arguments)
    options = Options(given.faults, given.seed)
    return run_and_show("formation", given.folder, lambda folder, jars: run(options, folder, jars))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
