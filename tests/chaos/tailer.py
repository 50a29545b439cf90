"""The tailer under faults: twenty sessions write while it, MongoDB and Kafka are killed, frozen and restarted.

`python -m tests.chaos.tailer --faults 50 --seed 1 [--replica-set] [--lose-position garbage]` prints a table and one
JSON object, and ends with 1 when anything is missing, out of order or wrong. The same seed draws the same faults and
the same operations; how they interleave is up to the machine.
"""

import asyncio
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from eden_memory.kafka.connection import admin_config
from eden_memory.kafka.topic_admin import apply_topics
from eden_memory.kafka.topics import load_topics
from eden_memory.settings import KafkaSettings
from tests.chaos import verdict
from tests.chaos.application import DATABASE, PARTITIONS, Application
from tests.chaos.command import parser, run_and_show
from tests.chaos.compaction import compacted
from tests.chaos.faults import TAKEOVER, Faults, plan
from tests.chaos.lost_position import WAYS, lose
from tests.chaos.reader import Reader, read_whole
from tests.chaos.report import Outcome, Violations, takeover
from tests.chaos.servers import Servers, private_servers
from tests.chaos.tailers import Tailers
from tests.chaos.waiting import NotInTime, cancelled, until

PREFIX = "chaos."
TOPIC = PREFIX + "chat.messages"
LEASE_SECONDS = 2.0
HISTORY = 15
"""Messages a session has before the first tailer starts: the backfill's."""
SETTINGS = {
    "EDEN_MONGODB_DATABASE": DATABASE,
    "EDEN_KAFKA_TOPIC_PREFIX": PREFIX,
    "EDEN_TAILER_LEASE_SECONDS": str(LEASE_SECONDS),
    "EDEN_TAILER_COMMIT_SECONDS": "1",
    "EDEN_TAILER_WATERMARK_SECONDS": "2",
    "EDEN_TAILER_BATCH_MESSAGES": "200",  # pages and batches end often
}


@dataclass(frozen=True)
class Options:
    """One run."""

    faults: int
    seed: int
    replica_set: bool = False
    lose_position: str | None = None
    tailers: int = 3
    pace: float = 0.7
    then_seed: int | None = None
    """As many faults again are drawn from this one."""

    @property
    def plan(self) -> list[str]:
        """The faults by name, in order."""
        seeds = [self.seed] if self.then_seed is None else [self.seed, self.then_seed]
        return [name for seed in seeds for name in plan(seed, self.faults, replica_set=self.replica_set)]

    @property
    def pre_images(self) -> bool:
        """In half of the seeds the collection keeps pre-images."""
        return self.seed % 2 == 0


@dataclass(frozen=True)
class Scene:
    """Everything that runs."""

    options: Options
    servers: Servers
    application: Application
    reader: Reader
    tailers: Tailers
    faults: Faults


async def run(options: Options, folder: Path, jars: Path) -> Outcome:
    """Set the scene, strike, wait for quiet, and judge; `folder` keeps the logs."""
    violations: Violations = {}
    began = time.monotonic()
    async with scene(options, folder, jars) as on:
        try:
            await _storm(on)
            await _quiet(on)
        except NotInTime as error:
            violations["never quiet"] = [str(error)]
        violations["processes"] = on.tailers.violations
        figures = {"seconds": round(time.monotonic() - began), **_figures(on)}
        violations |= await _judge(on)
        return Outcome(violations, figures, dict(on.faults.counts))


@asynccontextmanager
async def scene(options: Options, folder: Path, jars: Path) -> AsyncGenerator[Scene]:
    """Servers, topics, collection, reader and tailers; all gone after the block."""
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(
            private_servers(folder, jars, replica_set=options.replica_set)
        )
        application = Application(servers.mongo.endpoint, options.seed, pace=options.pace)
        stack.push_async_callback(application.close)
        await application.create(pre_images=options.pre_images)
        await application.history(HISTORY)
        await asyncio.to_thread(_create_topics, servers.kafka.endpoint)
        reader = Reader(servers.kafka.endpoint, TOPIC, PARTITIONS)
        stack.push_async_callback(cancelled, asyncio.create_task(reader.follow()))
        tailers = Tailers(_environment(servers), folder, options.tailers)
        stack.push_async_callback(tailers.abandon)
        await tailers.start()
        await until(
            lambda: len(reader.watermarks) == PARTITIONS or bool(tailers.violations), "the history is read in"
        )
        if tailers.violations:
            raise NotInTime(tailers.violations[0])

        async def flows() -> None:
            written = len(application.began)
            await until(
                lambda: any(key in reader.arrived for _, key in application.began[written:]),
                "a message written after a fault arrives",
            )

        faults = Faults(options.seed, servers, tailers, flows, LEASE_SECONDS)
        yield Scene(options, servers, application, reader, tailers, faults)


async def _storm(on: Scene) -> None:
    """The sessions chat while the faults strike; the position is lost halfway."""
    names = on.options.plan
    over = asyncio.Event()
    chatting = asyncio.create_task(on.application.chat(over))
    try:
        for number, name in enumerate(names):
            if number == len(names) // 2 and on.options.lose_position:
                await _lose_position(on, on.options.lose_position)
            sys.stderr.write(f"{number + 1}/{len(names)} {name}\n")
            await on.faults.strike(name)
    finally:
        await on.faults.calm()
        over.set()
        await chatting


async def _lose_position(on: Scene, way: str) -> None:
    await on.faults.calm()
    await on.tailers.stop()
    await asyncio.sleep(3)  # the sessions go on: what they write now, only the merge can bring
    await lose(way, on.application, on.options.seed, pre_images=on.options.pre_images)
    await on.tailers.start()


async def _quiet(on: Scene) -> None:
    """Until the tailer has promised that everything is published, and the inbox is empty; then it ends."""
    end = await on.application.cluster_time()
    last = await on.application.farewell()
    marks = on.reader.watermarks
    await until(lambda: all(key in on.reader.arrived for key in last), "the last messages arrive")
    await until(lambda: len(marks) == PARTITIONS and min(marks.values()) >= end, "watermarks reach the end")
    await on.tailers.stop()


async def _judge(on: Scene) -> Violations:
    bootstrap = on.servers.kafka.endpoint
    truth = await on.application.truth(PARTITIONS)
    live = on.reader.records
    committed = await read_whole(bootstrap, TOPIC, PARTITIONS, "read_committed")
    found: Violations = {
        "missing": verdict.missing(truth, live) + verdict.missing(truth, committed),
        "wrong": verdict.wrong(truth, live) + verdict.wrong(truth, committed),
        "one id for two events": verdict.shared_ids(live),
        "lost by a reader that drops repeats": verdict.unlike_what_is_kept(truth, live),
        "reordered": verdict.reordered(truth, live, merged=on.options.lose_position is not None),
        "broken watermarks": verdict.broken_promises(live),
        "left in the inbox": list(truth.left_in_inbox),
        "never arrived": [] if on.options.lose_position else verdict.never_arrived(truth, live),
        "not merged": _unmerged(on) if on.options.lose_position else [],
    }
    try:
        after = await compacted(bootstrap, TOPIC, PARTITIONS)
    except NotInTime as error:
        return {**found, "wrong after compaction": [str(error)]}
    return {**found, "wrong after compaction": verdict.missing(truth, after) + verdict.wrong(truth, after)}


def _unmerged(on: Scene) -> list[str]:
    """After a lost position there are messages that went unseen: a run without any proves nothing."""
    ended = [one for one in on.reader.records if one.reason == "missing"]
    return [] if ended else ["no tombstone with the reason `missing`"]


def _figures(on: Scene) -> dict[str, object]:
    records, seconds = on.reader.records, _takeovers(on)
    return {
        "seed": on.options.seed,
        **({} if on.options.then_seed is None else {"then seed": on.options.then_seed}),
        "replica set": on.options.replica_set,
        "pre-images": on.options.pre_images,
        "position lost": on.options.lose_position or "no",
        "faults": len(on.faults.struck),
        **{f"operations: {name}": count for name, count in sorted(on.application.counts.items())},
        "records": len(records),
        "tombstones: missing": sum(one.reason == "missing" for one in records),
        "repeats": verdict.repeats(records),
        "takeovers measured": len(seconds),
        **{f"takeover {name}, s": value for name, value in takeover(seconds).items()},
        "longest stop, s": round(max(on.tailers.stop_seconds, default=0.0), 2),
    }


def _takeovers(on: Scene) -> list[float]:
    """From each kill of the leader to the first arrival of a message written since, before the next fault."""
    found: list[float] = []
    for fault in on.faults.struck:
        if fault.name == TAKEOVER:
            arrived = [
                on.reader.arrived[key]
                for began, key in on.application.began
                if fault.done <= began <= fault.until and key in on.reader.arrived
            ]
            found += [min(arrived) - fault.done] if arrived and min(arrived) <= fault.until else []
    return found


def _create_topics(bootstrap: str) -> None:
    settings = KafkaSettings(bootstrap=bootstrap, topic_prefix=PREFIX, partitions=PARTITIONS)  # pyright: ignore[reportCallIssue]
    apply_topics(admin_config(settings, bootstrap), load_topics(settings))


def _environment(servers: Servers) -> dict[str, str]:
    addresses = {"EDEN_MONGODB_URI": servers.mongo.endpoint, "EDEN_KAFKA_BOOTSTRAP": servers.kafka.endpoint}
    return {**SETTINGS, **addresses}


def main(arguments: list[str]) -> int:
    """One run, shown; 0 when nothing was violated."""
    options = parser("tailer", __doc__, faults=200)
    options.add_argument("--then-seed", type=int, help="as many faults again, drawn from this one")
    options.add_argument(
        "--replica-set", action="store_true", help="three mongods; step-downs are faults too"
    )
    options.add_argument("--lose-position", choices=WAYS, help="halfway through")
    given = options.parse_args(arguments)
    wanted = Options(
        given.faults, given.seed, given.replica_set, given.lose_position, then_seed=given.then_seed
    )
    return run_and_show("tailer", given.folder, lambda folder, jars: run(wanted, folder, jars))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
