"""Rebuilding memory from its topics against a bulk versioned upsert of the same documents: documents/s, CPU, memory.

`python -m tests.bench.replay [--facts N] [--reflections N] [--blobs N] [--scopes N]`: the topics are filled, `eden
rebuild` runs in a process of its own, and the documents that it left are then upserted (each only over a lower
version) and inserted raw into collections with the same indexes and validators, in the same run. Servers of its own,
or EDEN_MONGODB_URI and EDEN_KAFKA_BOOTSTRAP.
"""

import argparse
import asyncio
import os
import resource
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

from pymongo import InsertOne, UpdateOne

from eden_memory.replay.installation import installation
from eden_memory.replay.namespaces.dropping import drop
from eden_memory.replay.namespaces.namespace_names import KINDS, prefix_of
from eden_memory.schemas.documents import Consolidated, Fact, Snapshot, StoredBlob
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.stage import Delivery
from tests.bench.report import Report, Row, most_memory
from tests.integration import stages_on_servers
from tests.integration.replay.replay_kit import ReplayKit
from tests.integration.stages_on_servers import PREFIX, on_servers, settings_of
from tests.servers import running_servers
from tests.unit.memory.memory_histories import blob, delivered, fact, reflection, source

NAME = "bench"
TARGET, MOST_MB = 0.7, 300.0
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


async def rebuilt(kit: ReplayKit) -> tuple[float, float, float]:
    """Seconds from the first document to the end, seconds of CPU, and the most memory in MB, of the command."""
    begun, snapshots = 0.0, kit.database[prefix_of(PREFIX, NAME) + Snapshot.COLLECTION]
    process = kit.eden("rebuild", NAME)
    peak = asyncio.create_task(most_memory(process.pid))
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
    return seconds, used.ru_utime + used.ru_stime, await peak


async def written(kit: ReplayKit, operation_of: Callable[[type[Any]], Operation]) -> tuple[float, float]:
    """Seconds and CPU of writing the rebuilt documents elsewhere, several at a time, `BATCH` each."""
    seconds = cpu = 0.0
    async with installation(kit.settings) as at:
        made = await at.namespaces.get(NAME)
        assert made is not None
        target = made.model_copy(update={"id": "other", "prefix": prefix_of(PREFIX, "other")})
        await at.namespaces.made(target)
        for kind in KINDS:
            operation, into = operation_of(kind), kit.database[target.prefix + kind.COLLECTION]
            async for rounds in _rounds(kit, made.prefix + kind.COLLECTION):
                operations = [[operation(one) for one in rows] for rows in rounds]
                begun, used = time.monotonic(), _cpu()
                await asyncio.gather(*(into.bulk_write(one, ordered=False) for one in operations))
                seconds, cpu = seconds + time.monotonic() - begun, cpu + _cpu() - used
        await drop(at, "other")
    return seconds, cpu


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


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def main(mongodb: str, kafka: str, facts: int, reflections: int, blobs: int, scopes: int) -> Report:
    """All three, in one run."""
    name = f"replay{uuid4().hex[:8]}"
    async with on_servers(ReplayKit, settings_of(mongodb, kafka, (name, f"{name}.", f"{name}."))) as kit:
        page: list[Delivery] = []
        for one in records(facts, reflections, blobs, scopes):
            page.append(one)
            if len(page) == 5_000:
                await kit.put(page)
                page = []
        await kit.put(page)
        seconds, cpu, memory = await rebuilt(kit)
        counts = {kind.COLLECTION: 0 for kind in KINDS}
        async with installation(kit.settings) as at:
            counts = await at.namespaces.counts(prefix_of(PREFIX, NAME))
        upserted, upsert_cpu = await written(kit, upsert)
        inserted, insert_cpu = await written(kit, raw)
        await kit.mongo.drop_database(name)
    documents = sum(counts.values())
    all_records = facts + reflections + blobs
    report = Report(
        "replay", f"rebuild of {all_records:,} records in {scopes:,} scopes, {documents:,} documents"
    )
    rates = {"rebuild": documents / seconds, "upsert": documents / upserted, "insert": documents / inserted}
    report.results = {
        **rates,
        "cpu": cpu,
        "upsert_cpu": upsert_cpu,
        "insert_cpu": insert_cpu,
        "peak_mb": memory,
        "documents": documents,
        "facts": counts["facts"],
        "blobs": counts["blobs"],
    }
    report.bounds = {"upsert": rates["upsert"], "insert": rates["insert"], "peak_mb": MOST_MB}
    report.ratios = {
        "rebuild_to_upsert": upserted / seconds,
        "rebuild_to_insert": inserted / seconds,
        "memory": memory / MOST_MB,
    }
    report.rows = [
        Row("rebuilt", rates["rebuild"], "documents/s", rates["upsert"], "versioned bulk upsert, same run"),
        Row("versioned bulk upsert", rates["upsert"], "documents/s", rates["insert"], "raw insert, same run"),
        Row("CPU of the rebuild, with its start", cpu, "s", upsert_cpu, "CPU of the upsert's client"),
        Row("most memory of the rebuild", memory, "MB", MOST_MB, "the target"),
    ]
    return report


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--facts", type=int, default=100_000)
    parser.add_argument("--reflections", type=int, default=30_000)
    parser.add_argument("--blobs", type=int, default=3_000)
    parser.add_argument("--scopes", type=int, default=300)
    given = parser.parse_args()
    stages_on_servers.PARTITIONS = 6  # as topics.yaml has it: memory grows with what waits in each
    with (
        tempfile.TemporaryDirectory() as folder,
        running_servers(dict(os.environ), Path(folder), Path(".eden/jars")) as servers,
    ):
        at = servers.mongodb_uri, servers.kafka_bootstrap
        asyncio.run(main(*at, given.facts, given.reflections, given.blobs, given.scopes)).show()
    sys.exit(0)
