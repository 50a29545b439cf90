"""formation-trigger against writing its documents: messages/s over many sessions, through Kafka and its worker.

The topic is filled before. Counted is from the first batch stored until all windows that watermarks close are
published and read back, by a process set up as `eden run` does. Beside it, in the same run and to the same server:
a bulk write of the documents that it left (each once, by as many writers as there are partitions, 500 at a time), and
of all that it wrote: messages take their formation, sessions close and are published.

`python -m tests.bench.formation_trigger [--messages N] [--sessions N] [--rounds N]`
"""

import argparse
import asyncio
import logging
import random
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import structlog
from pydantic import SecretStr
from pymongo import InsertOne, ReplaceOne, UpdateMany

from eden_memory.domain.stage import Delivery
from eden_memory.domain.windows.windows import Limits
from eden_memory.mongo.trigger.trigger_store import MongoTriggerStore
from eden_memory.runtime import process
from eden_memory.settings import KafkaSettings, MongoSettings, Settings
from tests.bench.report import Report, Row, median
from tests.integration.formation_trigger.harness import Kit
from tests.integration.runtime.harness import until
from tests.integration.stages_on_servers import PARTITIONS, Topic, on_servers
from tests.names import NAMES
from tests.servers import running_servers
from tests.unit.formation_trigger.records import message, watermark

BATCH = 500
TEXT = "We meet on Thursday at ten in the office by the river, and I bring the drawings. "
TARGET = 0.5
Writes = list[tuple[str, list[Any]]]
"""Collection and operations, one after the other."""


def conversations(messages: int, sessions: int, seed: int) -> list[Delivery]:
    """Messages of many sessions at once, in random turn, 80 to 400 characters."""
    dice = random.Random(seed)
    return [
        message(
            f"s.m{number}",
            f"s.{dice.randrange(sessions)}",
            number,
            number / messages,
            TEXT * dice.randint(1, 5),
            role="user" if number % 2 else "assistant",
            user="i.1" if number % 2 else None,
        )
        for number in range(1, messages + 1)
    ]


async def stage_rate(kit: Kit, log: Sequence[Delivery]) -> float:
    """Messages a second, from the first batch stored until all windows that watermarks close are published."""
    await kit.put(log)
    rounds = len({one.envelope.ordering_key for one in log}) // PARTITIONS // 1_000 + 2
    messages = kit.database["memory_messages"]
    async with kit.running(), kit.topic("memory.formations") as topic:
        await until(messages.find_one, "the first batch")
        started, before = time.monotonic(), await messages.estimated_document_count()
        await kit.put(
            watermark(len(log) + one, 20 + one, partition)
            for one in range(rounds)
            for partition in range(PARTITIONS)
        )
        await _all_published(kit, topic)
        return (len(log) - before) / (time.monotonic() - started)


async def _all_published(kit: Kit, topic: Topic) -> None:
    """Until nothing waits, is due or unpublished."""
    sessions, windows = kit.database["memory_sessions"], kit.database["memory_windows"]
    while True:
        await topic.read()
        await asyncio.sleep(0.2)
        if topic.records and await sessions.find_one({"due_at": {"$exists": True}}) is None:
            count = await windows.count_documents({})
            await topic.read()
            if len({one.key for one in topic.records}) == count:
                return


async def documents_left(kit: Kit) -> Writes:
    """What the stage stored, as inserts, in the sizes that it wrote: texts go from the message to the window."""
    found = {
        name: await kit.database["memory_" + name].find().to_list()
        for name in ("messages", "sessions", "windows")
    }
    texts = {one["message_id"]: one["text"] for row in found["windows"] for one in row["messages"]}
    for row in found["messages"]:
        row["text"] = row["text"] or texts[row["_id"]]
    return [(name, [InsertOne(row) for row in rows]) for name, rows in found.items()]


async def all_writes(kit: Kit, left: Writes) -> Writes:
    """What the stage left; then its messages take their formations, its sessions close and are published."""
    sessions = await kit.database["memory_sessions"].find().to_list()
    windows = await kit.database["memory_windows"].find({}, {"messages.message_id": 1}).to_list()
    claims = [
        UpdateMany(
            {"_id": {"$in": [one["message_id"] for one in row["messages"]]}, "formation_id": {"$ne": ""}},
            {"$set": {"formation_id": row["_id"], "text": None}},
        )
        for row in windows
    ]
    replaced = [ReplaceOne({"_id": row["_id"]}, row) for row in sessions]
    return [*left, ("sessions", replaced), ("messages", claims), ("sessions", replaced)]


async def bulk_seconds(kit: Kit, writes: Writes) -> float:
    """The same documents written in bulk, by as many writers as there are partitions, same indexes."""
    database = kit.mongo[f"{kit.settings.mongodb.database}_bulk{uuid4().hex[:6]}"]
    await MongoTriggerStore(database, NAMES, Limits()).create_indexes()

    async def writer(share: int) -> None:
        for name, operations in writes:
            mine = operations[share::PARTITIONS]
            for start in range(0, len(mine), BATCH):
                await database["memory_" + name].bulk_write(mine[start : start + BATCH], ordered=False)

    started = time.monotonic()
    await asyncio.gather(*(writer(share) for share in range(PARTITIONS)))
    seconds = time.monotonic() - started
    await kit.mongo.drop_database(database.name)
    return seconds


async def measured(mongodb: str, kafka: str, messages: int, sessions: int, rounds: int) -> dict[str, float]:
    """Messages a second: the stage, and both bulk writes; medians of the rounds."""
    found: dict[str, list[float]] = {"stage": [], "left": [], "all": []}
    for seed in range(rounds):
        async with _namespace(mongodb, kafka) as kit:
            found["stage"].append(await stage_rate(kit, conversations(messages, sessions, seed)))
            left = await documents_left(kit)
            found["left"].append(messages / await bulk_seconds(kit, left))
            found["all"].append(messages / await bulk_seconds(kit, await all_writes(kit, left)))
    return {name: median(values) for name, values in found.items()}


@asynccontextmanager
async def _namespace(mongodb: str, kafka: str) -> AsyncGenerator[Kit]:
    name = f"bench{uuid4().hex[:8]}"
    settings = Settings(
        mongodb=MongoSettings(uri=SecretStr(mongodb), database=name),  # pyright: ignore[reportCallIssue]
        kafka=KafkaSettings(bootstrap=kafka, topic_prefix=f"{name}.", group_prefix=f"{name}."),  # pyright: ignore[reportCallIssue]
    )
    async with on_servers(Kit, settings) as kit:
        yield kit
        await kit.mongo.drop_database(name)


def figures(mongodb: str, kafka: str, messages: int, sessions: int, rounds: int) -> dict[str, float]:
    """`measured`, in an event loop and with a collector as `eden run` has them."""
    found: dict[str, float] = {}

    async def measure() -> None:
        found.update(await measured(mongodb, kafka, messages, sessions, rounds))

    process.run(measure())
    return found


def report(rates: dict[str, float], sessions: int) -> Report:
    """The table and the line for programs."""
    rows = [
        Row("formation-trigger", rates["stage"], "messages/s", rates["left"], "bulk write of what it left"),
        Row("formation-trigger", rates["stage"], "messages/s", rates["all"], "bulk write of all it wrote"),
    ]
    ratios = {
        "of_documents_left": rates["stage"] / rates["left"],
        "of_all_writes": rates["stage"] / rates["all"],
    }
    return Report(
        bench="formation-trigger",
        title=f"formation-trigger over {sessions:,} sessions (target {TARGET} of a bulk write)",
        results={"messages_per_s": rates["stage"]},
        bounds={"documents_left_per_s": rates["left"], "all_writes_per_s": rates["all"]},
        ratios=ratios,
        rows=rows,
    )


def main() -> None:
    """Run it on private servers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--sessions", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with (
        tempfile.TemporaryDirectory() as folder,
        running_servers({}, Path(folder), Path(".eden/jars")) as servers,
    ):
        where = servers.mongodb_uri, servers.kafka_bootstrap
        rates = figures(*where, given.messages, given.sessions, given.rounds)
    report(rates, given.sessions).show()


if __name__ == "__main__":
    main()
