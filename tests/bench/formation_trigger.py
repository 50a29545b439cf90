"""formation-trigger against writing its documents: messages/s over many sessions, through Kafka and its worker.

The topic is filled before. Counted is from the first batch stored until all windows that watermarks close are
published and read back, by a process set up as `eden run` does. Beside it, in the same run, to the same server and by
as many writers as there are partitions: a bulk write of the documents that it left, each once (the target is 0.5 of
that), and of all that it has to write: messages take their formation, sessions close and are published.

`python -m tests.bench.formation_trigger [--messages N] [--sessions N] [--rounds N]`
"""

import argparse
import asyncio
import logging
import os
import random
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4
from zlib import crc32

import structlog
from pydantic import SecretStr
from pymongo import ReplaceOne, UpdateMany
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.processors.formation_trigger import MOST_DUE
from eden_memory.settings import KafkaSettings, MongoSettings, Settings, WindowsSettings
from eden_memory.stages import process
from eden_memory.stages.stage import Delivery
from eden_memory.windows.trigger_store import MongoTriggerStore
from eden_memory.windows.window_rule import Limits
from tests.bench.report import Report, Row, median
from tests.integration.stages.harness import until
from tests.integration.stages_on_servers import PARTITIONS, Topic, on_servers
from tests.integration.windows.harness import Kit
from tests.names import NAMES
from tests.servers import running_servers
from tests.unit.windows.records import message, watermark

BATCH = 1_000
TEXT = "We meet on Thursday at ten in the office by the river, and I bring the drawings. "
TARGET = 0.5
Document = dict[str, Any]
Database = AsyncDatabase[Document]


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
    rounds = len({one.envelope.ordering_key for one in log}) // PARTITIONS // MOST_DUE + 2
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


@dataclass(frozen=True, slots=True)
class Left:
    """The documents that the stage left; messages with their texts, as they came."""

    messages: list[Document]
    sessions: list[Document]
    windows: list[Document]

    def share(self, number: int) -> "Left":
        """What one of as many writers as there are partitions writes; a session's documents have one writer."""
        return Left(
            *(
                [one for one in rows if _writer(one) == number]
                for rows in (self.messages, self.sessions, self.windows)
            )
        )


def _writer(row: Document) -> int:
    return crc32(str(row.get("session_id", row["_id"])).encode()) % PARTITIONS


async def documents_left(kit: Kit) -> Left:
    """What the stage stored, as inserts: texts go from the window back to the message."""
    found = {
        name: await kit.database["memory_" + name].find().to_list()
        for name in ("messages", "sessions", "windows")
    }
    texts = {one["message_id"]: one["text"] for row in found["windows"] for one in row["messages"]}
    for row in found["messages"]:
        row["text"] = row["text"] or texts[row["_id"]]
    return Left(**found)


async def write_left(database: Database, left: Left) -> None:
    """Every document once."""
    for name, rows in (("messages", left.messages), ("sessions", left.sessions), ("windows", left.windows)):
        for some in batched(rows):
            await database["memory_" + name].insert_many(some, ordered=False)


async def write_all(database: Database, left: Left) -> None:
    """All that the stage has to write, in the fewest commands: nothing is read, decided, asked for or published.

    Messages wait; sessions say when they are cold; then messages take their formation, sessions close and windows
    are stored, together or not at all; what is published is cleared.
    """
    await write_left(database, Left(left.messages, left.sessions, []))
    sessions = {row["_id"]: row for row in left.sessions}
    for windows in batched(left.windows):
        closing = [sessions[one] for one in {row["session_id"] for row in windows}]
        async with database.client.start_session() as session:
            await session.with_transaction(partial(_close, database, windows, closing))
        these: Document = {"_id": {"$in": [row["_id"] for row in closing]}}
        cleared: Document = {"$set": {"outbox": []}, "$unset": {"unpublished": ""}}
        await database["memory_sessions"].update_many(these, cleared)


async def _close(
    database: Database, windows: list[Document], sessions: list[Document], transaction: AsyncClientSession
) -> None:
    """Messages, sessions and windows together."""
    claims = [_claim(row) for row in windows]
    replaced = [ReplaceOne({"_id": row["_id"]}, row) for row in sessions]
    await database["memory_messages"].bulk_write(claims, ordered=False, session=transaction)
    await database["memory_sessions"].bulk_write(replaced, ordered=False, session=transaction)
    await database["memory_windows"].insert_many(windows, ordered=False, session=transaction)


def _claim(window: Document) -> UpdateMany:
    members = [one["message_id"] for one in window["messages"]]
    free = {"_id": {"$in": members}, "session_id": window["session_id"], "deleted": False}
    return UpdateMany(free, {"$set": {"formation_id": window["_id"], "text": None}}, hint={"_id": 1})


def batched(rows: list[Document]) -> Iterator[list[Document]]:
    """So many documents at a time as the stage writes."""
    return (rows[start : start + BATCH] for start in range(0, len(rows), BATCH))


async def bulk_seconds(kit: Kit, left: Left, write: Callable[[Database, Left], Awaitable[None]]) -> float:
    """Written by as many writers as there are partitions, same indexes, same write concern."""
    database = kit.mongo[f"{kit.settings.mongodb.database}_bulk{uuid4().hex[:6]}"]
    await MongoTriggerStore(database, NAMES, Limits()).create_indexes()
    shares = [left.share(number) for number in range(PARTITIONS)]
    started = time.monotonic()
    await asyncio.gather(*(write(database, share) for share in shares))
    seconds = time.monotonic() - started
    await kit.mongo.drop_database(database.name)
    return seconds


async def measured(mongodb: str, kafka: str, messages: int, sessions: int, rounds: int) -> dict[str, float]:
    """Messages a second: the stage, and both bulk writes; medians of the rounds."""
    found: dict[str, list[float]] = {"stage": [], "left": [], "all": []}
    for seed in range(rounds):
        async with namespace(mongodb, kafka) as kit:
            found["stage"].append(await stage_rate(kit, conversations(messages, sessions, seed)))
            left = await documents_left(kit)
            found["left"].append(messages / await bulk_seconds(kit, left, write_left))
            found["all"].append(messages / await bulk_seconds(kit, left, write_all))
    return {name: median(values) for name, values in found.items()}


@asynccontextmanager
async def namespace(mongodb: str, kafka: str) -> AsyncGenerator[Kit]:
    """Names of their own on these servers; the database is dropped behind the block."""
    name = f"bench{uuid4().hex[:8]}"
    settings = Settings(
        mongodb=MongoSettings(uri=SecretStr(mongodb), database=name),  # pyright: ignore[reportCallIssue]
        kafka=KafkaSettings(bootstrap=kafka, topic_prefix=f"{name}.", group_prefix=f"{name}."),  # pyright: ignore[reportCallIssue]
        windows=WindowsSettings(stale_hours=0),
    )
    async with on_servers(Kit, settings) as kit:
        try:
            yield kit
        finally:
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
        Row("formation-trigger", rates["stage"], "messages/s", rates["all"], "all it has to write, in bulk"),
        Row("all it has to write", rates["all"], "messages/s", rates["left"], "bulk write of what it left"),
    ]
    ratios = {
        "of_documents_left": rates["stage"] / rates["left"],
        "of_all_writes": rates["stage"] / rates["all"],
        "all_writes_of_documents_left": rates["all"] / rates["left"],
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
        running_servers(os.environ, Path(folder), Path(".eden/jars")) as servers,
    ):
        where = servers.mongodb_uri, servers.kafka_bootstrap
        rates = figures(*where, given.messages, given.sessions, given.rounds)
    report(rates, given.sessions).show()


if __name__ == "__main__":
    main()
