"""Rebuilding memory from its topics against a bulk versioned upsert of the same documents: documents/s, CPU, memory.

`python -m tests.bench.replay [--facts N] [--reflections N] [--blobs N] [--scopes N] [--rounds N]`: the topics are
filled once. In each round `eden rebuild` runs in a process of its own, and the documents that it left are upserted
(each only over a lower version) into collections with the same indexes and validators, in the first round also
inserted raw. Servers of its own, or EDEN_MONGODB_URI and EDEN_KAFKA_BOOTSTRAP.
"""

import argparse
import asyncio
import os
import resource
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import psutil
from pymongo import InsertOne, UpdateOne

from eden_memory.replay.installation import installation
from eden_memory.replay.namespaces.dropping import drop
from eden_memory.replay.namespaces.namespace_store import KINDS, prefix_of
from eden_memory.schemas.documents import Consolidated, Fact, Snapshot, StoredBlob
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.stage import Delivery
from tests.bench.report import Report, Row, by_time, median, memory_rows, most_memory
from tests.integration import stages_on_servers
from tests.integration.replay.replay_kit import ReplayKit
from tests.integration.stages_on_servers import PREFIX, on_servers, settings_of
from tests.servers import running_servers
from tests.unit.memory.memory_histories import blob, delivered, fact, reflection, source

NAME = "bench"
TARGET, MOST_CPU_MS, MOST_MB = 0.8, 0.1, 300.0
DIMENSIONS = 256
BATCH, SIDE_BY_SIDE = 1_000, 6
VERSIONS = 10
"""Of each blob."""
ABSORBED = 0.9
"""Share of the reflections that a blob has absorbed."""
Operation = Callable[[dict[str, Any]], Any]
VERSION_OF = {Fact: "version", Consolidated: "version", StoredBlob: "version", Snapshot: "revision"}


def records(facts: int, reflections: int, blobs: int, scopes: int) -> Iterator[Delivery]:
    """As formation leaves them: scopes in turn, every twentieth fact an update of the one before it in its scope."""
    chance = Random(1)
    of = [Scope.of_user("s.assistant", f"i.{number}") for number in range(scopes)]
    vectors = [[chance.uniform(-1, 1) for _ in range(DIMENSIONS)] for _ in range(64)]
    for number in range(facts):
        scope, place = of[number % scopes], number // scopes
        updated = place % 20 == 19
        yield delivered(
            fact(
                f"f{number % scopes}-{place - updated}",
                1 + updated,
                f"The user said on day {number} that the garden needs {chance.random()} litres.",
                at=place,
                outcome=place + 1,
                scope=scope,
                sources=[source(number)],
                vector=vectors[number % 64],
            ),
            at=place,
        )
    each = max(reflections // scopes, 1)
    for number in range(reflections):
        scope = of[number % scopes]
        one = reflection(f"r{number % scopes}-{number // scopes}", at=number // scopes, scope=scope)
        yield delivered(one, at=number // scopes)
    versions = max(blobs // scopes, 1)
    step = int(each * ABSORBED) // versions
    for number in range(blobs):
        scope, version = number % scopes, number // scopes + 1
        absorbed = [f"r{scope}-{place}" for place in range((version - 1) * step, version * step)]
        yield delivered(blob(version, absorbed, at=each + version, scope=of[scope]), at=each + version)


@dataclass(frozen=True, slots=True)
class Written:
    """All documents once: seconds, and seconds of CPU of the client and of MongoDB."""

    seconds: float
    cpu: float
    server_cpu: float
    peak_mb: float = 0.0
    memory: tuple[float, ...] = ()
    """MB, twice a second."""


async def rebuilt(kit: ReplayKit) -> Written:
    """Run the command; its time counts from the first document to the end, its CPU with its start."""
    begun, snapshots = 0.0, kit.database[prefix_of(PREFIX, NAME) + Snapshot.COLLECTION]
    served = await _server_cpu(kit)
    process = kit.eden("rebuild", NAME)
    peak = asyncio.create_task(most_memory(process.pid))
    memory: list[float] = []
    sampling = asyncio.create_task(_sample(process.pid, memory))
    for _ in range(6_000):
        if begun:
            break
        if await snapshots.find_one({}, {"_id": 1}):
            begun = time.monotonic()
        await asyncio.sleep(0.01)
    _, status, used = await asyncio.to_thread(os.wait4, process.pid, 0)
    seconds, process.returncode = time.monotonic() - begun, os.waitstatus_to_exitcode(status)
    assert process.stdout is not None
    with process.stdout as shown:
        if status:
            raise RuntimeError(shown.read().decode())
    served = await _server_cpu(kit) - served
    await sampling
    return Written(seconds, used.ru_utime + used.ru_stime, served, await peak, tuple(memory))


async def _sample(pid: int, memory: list[float]) -> None:
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        while process.status() != psutil.STATUS_ZOMBIE:
            memory.append(process.memory_info().rss / 1e6)
            await asyncio.sleep(0.5)


async def written(kit: ReplayKit, operation_of: Callable[[type[Any]], Operation]) -> Written:
    """Write the rebuilt documents elsewhere, several at a time, `BATCH` each."""
    seconds = cpu = served = 0.0
    async with installation(kit.settings) as at:
        made = await at.namespaces.get(NAME)
        assert made is not None
        target = made.model_copy(update={"id": "other", "prefix": prefix_of(PREFIX, "other")})
        await at.namespaces.made(target)
        for kind in KINDS:
            operation, into = operation_of(kind), kit.database[target.prefix + kind.COLLECTION]
            async for rounds in _rounds(kit, made.prefix + kind.COLLECTION):
                operations = [[operation(one) for one in rows] for rows in rounds]
                there, begun, used = await _server_cpu(kit), time.monotonic(), _cpu()
                await asyncio.gather(*(into.bulk_write(one, ordered=False) for one in operations))
                seconds, cpu = seconds + time.monotonic() - begun, cpu + _cpu() - used
                served += await _server_cpu(kit) - there
        await drop(at, "other")
    return Written(seconds, cpu, served)


async def _rounds(kit: ReplayKit, name: str) -> AsyncGenerator[list[list[dict[str, Any]]]]:
    rows: list[dict[str, Any]] = []
    async for row in kit.database[name].find():
        rows.append(row)
        if len(rows) == BATCH * SIDE_BY_SIDE:
            yield [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)]
            rows = []
    if rows:
        yield [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)]


def upsert(kind: type[Any]) -> Operation:
    """Only over a lower version: what a sink that knows nothing of memory would do."""
    version = VERSION_OF.get(kind)

    def one(row: dict[str, Any]) -> Any:
        if version is None:
            return UpdateOne({"_id": row["_id"]}, {"$setOnInsert": row}, upsert=True)
        newer = {"$gt": [row[version], {"$ifNull": [f"${version}", -1]}]}
        fields = {
            name: {"$cond": [newer, {"$literal": value}, f"${name}"]}
            for name, value in row.items()
            if name != "_id"
        }
        return UpdateOne({"_id": row["_id"]}, [{"$set": fields}], upsert=True)

    return one


def raw(kind: type[Any]) -> Operation:
    """Inserted."""
    del kind
    return InsertOne


async def _server_cpu(kit: ReplayKit) -> float:
    """Seconds of CPU that mongod has used since its start."""
    said = (await kit.mongo.admin.command("serverStatus"))["extra_info"]
    return (said["user_time_us"] + said["system_time_us"]) / 1e6


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def main(
    mongodb: str, kafka: str, facts: int, reflections: int, blobs: int, scopes: int, rounds: int = 1
) -> Report:
    """All three in one run; without rounds, one rebuild alone."""
    name = f"replay{uuid4().hex[:8]}"
    rebuilds: list[Written] = []
    upserts: list[Written] = []
    async with on_servers(ReplayKit, settings_of(mongodb, kafka, (name, f"{name}.", f"{name}."))) as kit:
        page: list[Delivery] = []
        for one in records(facts, reflections, blobs, scopes):
            page.append(one)
            if len(page) == 5_000:
                await kit.put(page)
                page = []
        await kit.put(page)
        inserted = counts = None
        for _ in range(rounds or 1):
            rebuilds.append(await rebuilt(kit))
            if rounds:
                upserts.append(await written(kit, upsert))
                inserted = inserted or await written(kit, raw)
            async with installation(kit.settings) as at:
                counts = await at.namespaces.counts(prefix_of(PREFIX, NAME))
                await drop(at, NAME)
            if rounds:
                _tell(rebuilds[-1], upserts[-1])
        await kit.mongo.drop_database(name)
    assert counts is not None
    if inserted is None:
        return _alone((facts, reflections, blobs, scopes), counts, rebuilds[0])
    return _report((facts, reflections, blobs, scopes), counts, rebuilds, upserts, inserted)


def _alone(given: tuple[int, int, int, int], counts: dict[str, int], rebuild: Written) -> Report:
    """Return the figures of a rebuild with nothing beside it: what counts is how its memory grows."""
    documents, all_records, memory = sum(counts.values()), sum(given[:3]), by_time(rebuild.memory)
    return Report(
        "replay-alone",
        f"rebuild of {all_records:,} records in {given[3]:,} scopes, {documents:,} documents",
        results={
            "rebuild": documents / rebuild.seconds,
            "cpu_ms": rebuild.cpu / all_records * 1000,
            "peak_mb": rebuild.peak_mb,
            "facts": counts["facts"],
        },
        ratios={"memory_grown": memory[-1] / memory[0]},
        rows=[
            Row("rebuilt", documents / rebuild.seconds, "documents/s"),
            Row(
                "CPU of the rebuild",
                rebuild.cpu / all_records * 1000,
                "ms a record",
                MOST_CPU_MS,
                "the target",
            ),
            Row("CPU of mongod meanwhile", rebuild.server_cpu / all_records * 1000, "ms a record"),
            Row("most memory of the rebuild", rebuild.peak_mb, "MB", MOST_MB, "the target"),
            *memory_rows(memory),
        ],
    )


def _tell(rebuild: Written, upserted: Written) -> None:
    print(  # noqa: T201 - a round's figures, as they come
        f"{upserted.seconds / rebuild.seconds:.2f} of the upsert: {rebuild.seconds:.1f} and {upserted.seconds:.1f} s;"
        f" CPU {rebuild.cpu:.1f} and {upserted.cpu:.1f} s, of mongod {rebuild.server_cpu:.1f} and"
        f" {upserted.server_cpu:.1f} s; {rebuild.peak_mb:.0f} MB; load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def _report(
    given: tuple[int, int, int, int],
    counts: dict[str, int],
    rebuilds: list[Written],
    upserts: list[Written],
    inserted: Written,
) -> Report:
    documents, all_records = sum(counts.values()), sum(given[:3])
    report = Report(
        "replay", f"rebuild of {all_records:,} records in {given[3]:,} scopes, {documents:,} documents"
    )
    ratios = [upserted.seconds / rebuild.seconds for rebuild, upserted in zip(rebuilds, upserts, strict=True)]
    cpus = [rebuild.cpu / all_records * 1000 for rebuild in rebuilds]
    rebuild = documents / median([rebuild.seconds for rebuild in rebuilds])
    upserted = documents / median([upserted.seconds for upserted in upserts])
    memory = max(rebuild.peak_mb for rebuild in rebuilds)
    report.results = {
        "rebuild": rebuild,
        "upsert": upserted,
        "insert": documents / inserted.seconds,
        "cpu_ms": median(cpus),
        "peak_mb": memory,
        "documents": documents,
        "facts": counts["facts"],
        "blobs": counts["blobs"],
    }
    report.bounds = {"upsert": upserted, "insert": documents / inserted.seconds, "peak_mb": MOST_MB}
    report.ratios = {
        "rebuild_to_upsert": median(ratios),
        "least_to_upsert": min(ratios),
        "most_to_upsert": max(ratios),
        "memory": memory / MOST_MB,
    }
    servers = [
        median([written.server_cpu / all_records * 1000 for written in of]) for of in (rebuilds, upserts)
    ]
    report.rows = [
        Row("rebuilt", rebuild, "documents/s", upserted, "versioned bulk upsert, same run"),
        Row("share of the upsert, by rounds", median(ratios), "", TARGET, "the target"),
        Row("the least and", min(ratios), "", max(ratios), "the greatest share"),
        Row("versioned bulk upsert", upserted, "documents/s", documents / inserted.seconds, "raw insert"),
        Row("CPU of the rebuild, with its start", median(cpus), "ms a record", MOST_CPU_MS, "the target"),
        Row("CPU of mongod meanwhile", servers[0], "ms a record", servers[1], "in the upsert"),
        Row("most memory of the rebuild", memory, "MB", MOST_MB, "the target"),
    ]
    return report


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--facts", type=int, default=100_000)
    parser.add_argument("--reflections", type=int, default=30_000)
    parser.add_argument("--blobs", type=int, default=3_000)
    parser.add_argument("--scopes", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5, help="0: one rebuild alone")
    given = parser.parse_args()
    stages_on_servers.PARTITIONS = 6  # as topics.yaml has it: memory grows with what waits in each
    with (
        tempfile.TemporaryDirectory() as folder,
        running_servers(os.environ, Path(folder), Path(".eden/jars")) as servers,
    ):
        at = servers.mongodb_uri, servers.kafka_bootstrap
        counted = given.facts, given.reflections, given.blobs, given.scopes
        asyncio.run(main(*at, *counted, given.rounds)).show()
    sys.exit(0)
