"""Imports from mem0: seconds until every item is a fact with its vector, on real servers with local embeddings.

`python -m tests.bench.imports [--items N] [--users N]`: servers of its own, or EDEN_MONGODB_URI and
EDEN_KAFKA_BOOTSTRAP. `eden run` and `eden import` are processes of their own, as people start them; items stand in
the order of their times, so each comes from another user than the one before.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import Sequence
from pathlib import Path
from random import Random
from uuid import uuid4

import psutil
from pydantic import SecretStr

from eden_memory.mongo.client import connect
from eden_memory.settings import KafkaSettings, LocalSettings, MongoSettings, Settings
from tests.bench.report import Report, Row, most_memory
from tests.integration.system.commands import eden, start
from tests.servers import running_servers

TARGET, MOST_MB = 300.0, 300.0
"""Seconds for 100,000 items, and of the command's memory."""
PLACES = ("Lyon", "Oslo", "Turin", "Porto", "Graz", "Bergen")
THINGS = ("a boat", "a garden", "an old piano", "two bicycles", "a darkroom", "a telescope", "a bakery")


def write(file: Path, items: int, users: int) -> None:
    """Write items of about 8 words, as mem0 has them, each text once."""
    chance = Random(1)
    with file.open("w") as out:
        for number in range(items):
            text = f"Bought {chance.choice(THINGS)} in {chance.choice(PLACES)}, receipt {number}"
            row = {"id": f"m{number}", "memory": text, "user_id": f"user{chance.randrange(users)}"}
            out.write(json.dumps({**row, "created_at": f"20{10 + number % 15}-03-01T10:00:00+00:00"}) + "\n")


def settings_in(folder: Path, mongodb: str, kafka: str) -> Settings:
    """Return a namespace whose facts are embedded here, and nothing else by a model."""
    name = f"bench{uuid4().hex[:8]}"
    return Settings(
        mongodb=MongoSettings(uri=SecretStr(mongodb), database=name),  # pyright: ignore[reportCallIssue]
        kafka=KafkaSettings(bootstrap=kafka, topic_prefix=f"{name}.", group_prefix=f"{name}."),  # pyright: ignore[reportCallIssue]
        local=LocalSettings(folder=folder / "eden"),  # pyright: ignore[reportCallIssue]
        embedder="local",
    )


async def measured(settings: Settings, file: Path, folder: Path) -> tuple[float, float, str]:
    """Return the seconds of the command, its memory in MB, and what it said."""
    begun, log = time.monotonic(), folder / "import.log"
    process = await start(settings, log, "import", "mem0", str(file), "--yes")
    peak = asyncio.create_task(most_memory(process.pid))
    assert await process.wait() == 0, log.read_text()[-2_000:]
    return time.monotonic() - begun, await peak, log.read_text()


def cpu_of_all() -> float:
    """Return the CPU seconds of this process and of all that it has started, ended ones included."""
    me = psutil.Process()
    return sum(sum(process.cpu_times()[:4]) for process in (me, *me.children(recursive=True)))


async def stopped(process: Process) -> None:
    """Stop `eden run` as SIGTERM does."""
    process.terminate()
    await process.wait()


async def main(arguments: Sequence[str]) -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--users", type=int, default=1_000)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "mem0.jsonl"
        write(file, given.items, given.users)
        with running_servers(os.environ, folder, Path(".eden/jars")) as servers:
            settings = settings_in(folder, servers.mongodb_uri, servers.kafka_bootstrap)
            await eden(settings, "topics", "apply", "--yes")
            await eden(settings, "setup")
            running = await start(settings, folder / "run.log", "run")
            try:
                before = cpu_of_all()
                seconds, memory, said = await measured(settings, file, folder)
                cpu = 1_000 * (cpu_of_all() - before) / given.items
                again, _, _ = await measured(settings, file, folder)
                async with connect(servers.mongodb_uri) as client:
                    facts = client[settings.mongodb.database][settings.names["facts"]]
                    stored = await facts.count_documents({"embedding": {"$ne": None}, "version": 1})
                    await client.drop_database(settings.mongodb.database)
            finally:
                await stopped(running)
    sys.stderr.write(said[-1_500:])
    report = Report("imports", f"eden import of {given.items:,} mem0 items of {given.users:,} users")
    report.rows = [
        Row("until all are facts with vectors", seconds, "s", TARGET * given.items / 100_000, "the target"),
        Row("CPU of everything, an item", cpu, "ms"),
        Row("memory of the command", memory, "MB", MOST_MB, "the target"),
        Row("the same import again", again, "s"),
        Row("facts with vectors, version 1", stored, "facts", given.items, "the items"),
    ]
    report.results = {"seconds": seconds, "mb": memory, "cpu": cpu, "again": again, "facts": stored}
    report.show()


if __name__ == "__main__":
    os.environ.setdefault("EDEN_LLM", "offline")
    asyncio.run(main(sys.argv[1:]))
