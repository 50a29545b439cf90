"""The tailer against its bounds: catch-up, backfill, CPU and memory (tailer_pairs.py: latency).

`python -m tests.bench.tailer [--messages N] [--rounds N] [--million]`: private servers, the tailer as a process of
its own, a table for people and one JSON object as the last line.

The bounds come from the same run over the same messages: the change stream alone (raw batches, nothing decoded
but the envelope of the answer), the producer alone (finished records, whole zstd batches), and both one after
the other, 1/(1/a + 1/b).
"""

import argparse
import asyncio
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from bson import CodecOptions
from bson.raw_bson import RawBSONDocument
from pydantic import SecretStr
from pymongo import ASCENDING, AsyncMongoClient

from eden_memory.assembly import tailer as source_tailing
from eden_memory.kafka.connection import admin_config, client_kwargs
from eden_memory.kafka.record import Outgoing
from eden_memory.kafka.topic_admin import apply_topics
from eden_memory.kafka.topics import load_topics
from eden_memory.mongo.client import connect
from eden_memory.settings import KafkaSettings, MongoSettings, Settings
from eden_memory.stages.publishing import partition_for
from tests.bench.chat_load import messages
from tests.bench.report import Report, Row, median
from tests.servers import TestServers, running_servers

TAILER = (sys.executable, "-m", "eden_memory.cli.main", "run", "tailer")
BATCH = 4_000
MEMORY_TARGET, CPU_TARGET = 150.0, 18.0
MEGABYTE = 1 << 20
LONGEST_SECONDS = 1_800.0
"""Over 1,000,000 messages, on a machine that others use as well."""
MARKERS = 200
"""A start writes a few markers, which take offsets: they are not the first record yet."""


@dataclass(frozen=True)
class Passage:
    """How a tailer went over waiting messages."""

    rate: float
    """Messages a second, from the first to the last seen on Kafka."""
    cpu: float
    """µs of CPU a message."""
    memory: list[tuple[int, float]]
    """Megabytes resident when so many messages were through."""


@dataclass
class Stand:
    """Servers, names and connections of one run."""

    settings: Settings
    mongo: AsyncMongoClient[dict[str, Any]]
    consumer: Any
    count: int
    token: str = ""

    @property
    def uri(self) -> str:
        """Where MongoDB is."""
        uri = self.settings.mongodb.uri
        assert uri is not None
        return uri.get_secret_value()

    @property
    def topic(self) -> str:
        """The full name of `chat.messages`."""
        return self.settings.kafka.topic_prefix + "chat.messages"

    @property
    def database(self) -> Any:
        return self.mongo[self.settings.mongodb.database]

    async def ends(self) -> int:
        """Records on `chat.messages`, whoever wrote them."""
        return sum((await self.consumer.end_offsets(self.consumer.assignment())).values())

    async def place(self, phase: str, token: str | None = None) -> None:
        """Set the tailer back to before all messages, or to another position."""
        where = {"token": token or self.token, "version": "0" * 16, "phase": phase, "page": None, "read": 0}
        where["published"] = True
        await self.database[self.settings.names["positions"]].update_one(
            {"_id": self.settings.source_name}, {"$set": where}, upsert=True
        )

    async def place_now(self) -> None:
        """Set the tailer behind all messages."""
        await self.place("stream", await self.now())

    async def now(self) -> str:
        """The stream's position of this moment."""
        async with await self.database.watch(max_await_time_ms=50) as stream:
            await stream.try_next()
            return str(stream.resume_token["_data"])


@asynccontextmanager
async def stand(servers: TestServers, count: int) -> AsyncGenerator[Stand]:
    """`count` waiting messages, all of them newer than the position."""
    name = f"bench{uuid4().hex[:8]}"
    settings = Settings(
        mongodb=MongoSettings(uri=SecretStr(servers.mongodb_uri), database=name),  # pyright: ignore[reportCallIssue]
        kafka=KafkaSettings(bootstrap=servers.kafka_bootstrap, topic_prefix=f"{name}."),  # pyright: ignore[reportCallIssue]
    )
    topics = load_topics(settings.kafka)
    apply_topics(admin_config(settings.kafka, servers.kafka_bootstrap), topics)
    consumer: Any = AIOKafkaConsumer(topics.name("chat.messages"), bootstrap_servers=servers.kafka_bootstrap)
    await consumer.start()
    try:
        async with connect(servers.mongodb_uri) as mongo:
            made = Stand(settings, mongo, consumer, count)
            await _fill(made)
            yield made
    finally:
        await consumer.stop()


async def _fill(made: Stand) -> None:
    collection = made.database["messages"]
    await collection.create_index([("created_at", ASCENDING), ("_id", ASCENDING)])
    made.token = await made.now()
    documents = messages(made.count)
    while batch := list(islice(documents, 10_000)):
        await collection.insert_many(batch, ordered=False)


async def drained(made: Stand) -> float:
    """Bound a: the change stream alone, messages a second."""
    raw: CodecOptions[Any] = CodecOptions(document_class=RawBSONDocument)
    stage = {"$changeStream": {"resumeAfter": {"_data": made.token}, "fullDocument": "updateLookup"}}
    command: dict[str, Any] = {"pipeline": [stage], "cursor": {"batchSize": BATCH}}
    seen, began = 0, time.monotonic()
    reply = await made.database.command({"aggregate": "messages", **command}, codec_options=raw)
    while True:
        cursor = reply["cursor"]
        seen += len(cursor["firstBatch" if "firstBatch" in cursor else "nextBatch"])
        if seen >= made.count:
            return seen / (time.monotonic() - began)
        more = {"getMore": cursor["id"], "collection": "messages", "batchSize": BATCH}
        reply = await made.database.command(more, codec_options=raw)


def finished_records(made: Stand, count: int) -> list[Outgoing]:
    """What the tailer makes of the first messages."""
    mapping = source_tailing.message_mapping(made.settings)
    time_ = b"2026-01-01T00:00:00.000Z"
    return [
        mapping.record(one, f"{number:016x}", time_, "stream") for number, one in enumerate(messages(count))
    ]


async def produced(made: Stand, records: Sequence[Outgoing]) -> float:
    """Bound b: the producer alone, the same records in whole batches."""
    producer: Any = AIOKafkaProducer(
        **_client(made),
        enable_idempotence=True,
        compression_type="zstd",
        max_batch_size=900_000,
        linger_ms=0,
    )
    name = made.settings.kafka.topic_prefix + "chat.messages"
    await producer.start()
    try:
        count, began = len(await producer.partitions_for(name)), time.monotonic()
        sent: list[Any] = []
        for start in range(0, len(records), BATCH):
            builders = [producer.create_batch() for _ in range(count)]
            for one in records[start : start + BATCH]:
                builder = builders[partition_for(one.ordering_key, count)]
                builder.append(key=one.key, value=one.value, timestamp=None, headers=one.headers)
            sent += [
                await producer.send_batch(builder, name, partition=number)
                for number, builder in enumerate(builders)
            ]
        await asyncio.gather(*sent)
        return len(records) / (time.monotonic() - began)
    finally:
        await producer.stop()


def _client(made: Stand) -> dict[str, Any]:
    assert made.settings.kafka.bootstrap is not None
    return client_kwargs(made.settings.kafka, made.settings.kafka.bootstrap)


@contextmanager
def tailer_process(made: Stand, command: Sequence[str] = TAILER) -> Generator[psutil.Process]:
    """`eden run tailer`, or another tailer, stopped by SIGTERM after the block."""
    environment = {
        "EDEN_MONGODB_URI": made.uri,
        "EDEN_MONGODB_DATABASE": made.settings.mongodb.database,
        "EDEN_KAFKA_BOOTSTRAP": made.settings.kafka.bootstrap or "",
        "EDEN_KAFKA_TOPIC_PREFIX": made.settings.kafka.topic_prefix,
        "EDEN_TAILER_LEASE_SECONDS": "30",
    }
    with tempfile.NamedTemporaryFile(suffix=".log") as log:
        process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=log, stderr=log)
        try:
            yield psutil.Process(process.pid)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{Path(log.name).read_text()[-2_000:]}") from None
        finally:
            process.terminate()
            process.wait(20)


async def passed(made: Stand, phase: str, command: Sequence[str] = TAILER) -> Passage:
    """A tailer over all messages, by the stream or by a backfill."""
    await made.place(phase)
    before = await made.ends()
    with tailer_process(made, command) as process:
        await until(made.ends, lambda ends: ends > before + MARKERS, "the first records")
        first, began, cpu = await made.ends(), time.monotonic(), cpu_of(process)
        memory: list[tuple[int, float]] = []

        def through(ends: int) -> bool:
            memory.append((ends - before, process.memory_info().rss / MEGABYTE))
            return ends >= before + made.count

        last = await until(made.ends, through, "the last record", LONGEST_SECONDS)
        seconds, moved = time.monotonic() - began, max(last - first, 1)
        return Passage(moved / seconds, (cpu_of(process) - cpu) / moved * 1e6, memory)


async def until(
    look: Callable[[], Any], holds: Callable[[int], bool], what: str, seconds: float = 60.0
) -> int:
    end = time.monotonic() + seconds
    while not holds(found := await look()):
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.01)
    return int(found)


def cpu_of(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


async def measure(servers: TestServers, count: int, rounds: int) -> Report:
    """Speed, CPU and memory."""
    report = Report("tailer", f"the tailer over {count:,} messages of about 400 bytes, {rounds} rounds")
    async with stand(servers, count) as made:
        records = finished_records(made, min(count, 50_000))
        drains, produces, streams, fills = list[float](), list[float](), list[Passage](), list[Passage]()
        for _ in range(rounds):
            drains.append(await drained(made))
            produces.append(await produced(made, records))
            streams.append(await passed(made, "stream"))
            fills.append(await passed(made, "backfill"))
        del records
        _throughput(report, median(drains), median(produces), streams, fills)
    return report


def _throughput(
    report: Report, a: float, b: float, streams: Sequence[Passage], fills: Sequence[Passage]
) -> None:
    serial = 1 / (1 / a + 1 / b)
    catch_up, backfill = median([one.rate for one in streams]), median([one.rate for one in fills])
    cpu = median([one.cpu for one in streams])
    fill_cpu = median([one.cpu for one in fills])
    memory = max(used for one in (*streams, *fills) for _, used in one.memory)
    report.bounds |= {"change_stream_per_s": a, "producer_per_s": b, "serial_per_s": serial}
    report.results |= {"catch_up_per_s": catch_up, "backfill_per_s": backfill, "memory_mb": memory}
    report.results |= {"catch_up_us_cpu": cpu, "backfill_us_cpu": fill_cpu}
    report.ratios |= {
        "catch_up_of_serial": catch_up / serial,
        "backfill_of_catch_up": backfill / catch_up,
        "memory_of_target": memory / MEMORY_TARGET,
    }
    report.rows += [
        Row("change stream alone", a, "messages/s"),
        Row("producer alone", b, "messages/s"),
        Row("catch-up", catch_up, "messages/s", serial, "both, one after the other"),
        Row("backfill", backfill, "messages/s", catch_up, "catch-up"),
        Row("CPU, catch-up", cpu, "µs a message", CPU_TARGET, "target"),
        Row("CPU, backfill", fill_cpu, "µs a message", CPU_TARGET, "target"),
        Row("memory, at most", memory, "MB", MEMORY_TARGET, "target"),
    ]


async def million(servers: TestServers, count: int = 1_000_000) -> Report:
    """Memory over a long catch-up: what it is at a tenth of the way, and at the end."""
    report = Report("tailer-memory", f"memory over {count:,} messages")
    async with stand(servers, count) as made:
        for phase in ("stream", "backfill"):
            memory = (await passed(made, phase)).memory
            early = max(used for done, used in memory if done <= count // 10)
            late = max(used for _, used in memory)
            report.results |= {f"{phase}_early_mb": early, f"{phase}_most_mb": late}
            report.ratios[f"{phase}_most_of_early"] = late / early
            report.rows.append(Row(f"{phase}: at most", late, "MB", early, "at a tenth of the way"))
    return report


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--million", action="store_true", help="memory over 1,000,000 messages instead")
    asked = parser.parse_args()
    logging.disable(logging.ERROR)
    with (
        tempfile.TemporaryDirectory() as folder,
        running_servers(os.environ, Path(folder), Path(".eden/jars")) as servers,
    ):
        work = million(servers) if asked.million else measure(servers, asked.messages, asked.rounds)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(work).show()


if __name__ == "__main__":
    main()
