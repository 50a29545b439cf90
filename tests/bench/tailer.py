"""The tailer against its bounds: catch-up, backfill, insert → readable in Kafka, CPU and memory.

`python -m tests.bench.tailer [--messages N] [--rounds N] [--seconds N] [--million]`: private servers, the tailer
as a process of its own, a table for people and one JSON object as the last line.

The bounds come from the same run over the same messages: the change stream alone (raw batches, nothing decoded
but the envelope of the answer), the producer alone (finished records, whole zstd batches), and both one after
the other, 1/(1/a + 1/b).
"""

import argparse
import asyncio
import gc
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
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
from eden_memory.kafka.outgoing import Outgoing
from eden_memory.kafka.topic_admin import apply_topics
from eden_memory.kafka.topics import load_topics
from eden_memory.mongo.client import connect
from eden_memory.settings import KafkaSettings, MongoSettings, Settings
from eden_memory.stages.publishing import partition_for
from tests.bench.chat_load import messages
from tests.bench.report import Report, Row, median, percentile
from tests.servers import TestServers, running_servers

COMMAND = (sys.executable, "-m", "eden_memory.cli.main", "run", "tailer")
BATCH = 4_000
RATES = (50, 500)
MEMORY_TARGET, P50_TARGET, P99_TARGET, CPU_TARGET = 150.0, 4.0, 12.0, 25.0
MEGABYTE = 1 << 20


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
    tokens: list[str] = field(default_factory=list[str])

    @property
    def database(self) -> Any:
        return self.mongo[self.settings.mongodb.database]

    async def ends(self) -> int:
        """Records on `chat.messages`, whoever wrote them."""
        return sum((await self.consumer.end_offsets(self.consumer.assignment())).values())

    async def place(self, phase: str) -> None:
        """Set the tailer back to before all messages."""
        where = {"token": self.token, "version": "0" * 16, "phase": phase, "page": None, "read": 0}
        await self.database[self.settings.names["positions"]].update_one(
            {"_id": source_tailing.source_name(self.settings)}, {"$set": where}, upsert=True
        )


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
        async with connect(settings.mongodb, servers.mongodb_uri) as mongo:
            made = Stand(settings, mongo, consumer, count)
            await _fill(made)
            yield made
    finally:
        await consumer.stop()


async def _fill(made: Stand) -> None:
    collection = made.database["messages"]
    await collection.create_index([("created_at", ASCENDING), ("_id", ASCENDING)])
    async with await made.database.watch(max_await_time_ms=50) as stream:
        await stream.try_next()
        made.token = str(stream.resume_token["_data"])
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
def tailer_process(made: Stand) -> Generator[psutil.Process]:
    """`eden run tailer`, stopped by SIGTERM after the block."""
    uri, kafka = made.settings.mongodb.uri, made.settings.kafka
    assert uri is not None
    environment = {
        "EDEN_MONGODB_URI": uri.get_secret_value(),
        "EDEN_MONGODB_DATABASE": made.settings.mongodb.database,
        "EDEN_KAFKA_BOOTSTRAP": kafka.bootstrap or "",
        "EDEN_KAFKA_TOPIC_PREFIX": kafka.topic_prefix,
        "EDEN_TAILER_LEASE_SECONDS": "30",
    }
    with tempfile.NamedTemporaryFile(suffix=".log") as log:
        process = subprocess.Popen(COMMAND, env={**os.environ, **environment}, stdout=log, stderr=log)
        try:
            yield psutil.Process(process.pid)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{Path(log.name).read_text()[-2_000:]}") from None
        finally:
            process.terminate()
            process.wait(20)


async def passed(made: Stand, phase: str) -> Passage:
    """A tailer over all messages, by the stream or by a backfill."""
    await made.place(phase)
    before = await made.ends()
    with tailer_process(made) as process:
        await _until(made.ends, lambda ends: ends > before, "the first record")
        first, began, cpu = await made.ends(), time.monotonic(), _cpu(process)
        memory: list[tuple[int, float]] = []

        def through(ends: int) -> bool:
            memory.append((ends - before, process.memory_info().rss / MEGABYTE))
            return ends >= before + made.count

        last = await _until(made.ends, through, "the last record", 300)
        seconds, moved = time.monotonic() - began, max(last - first, 1)
        return Passage(moved / seconds, (_cpu(process) - cpu) / moved * 1e6, memory)


async def _until(
    look: Callable[[], Any], holds: Callable[[int], bool], what: str, seconds: float = 60.0
) -> int:
    end = time.monotonic() + seconds
    while not holds(found := await look()):
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.01)
    return int(found)


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


async def stream_latencies(made: Stand, rate: int, seconds: float) -> list[float]:
    """A bound: milliseconds from the call of insert_one to the bare event in this process's hands."""
    written: dict[Any, float] = {}
    arrived: dict[Any, float] = {}
    collection = made.database[f"bound_{uuid4().hex[:8]}"]
    async with await collection.watch([{"$project": {"documentKey": 1}}]) as stream:

        async def write(number: int) -> None:
            written[number] = time.perf_counter()
            await collection.insert_one({"_id": number, "content": "x" * 300})

        async def read() -> None:
            while len(arrived) < int(rate * seconds):
                event = await stream.next()
                arrived[event["documentKey"]["_id"]] = time.perf_counter()

        await _at(rate, seconds, write, read)
    await collection.drop()
    return _milliseconds(written, arrived)


async def producer_latencies(made: Stand, rate: int, seconds: float) -> list[float]:
    """A bound: milliseconds from handing one record to the producer to the record in a consumer's hands."""
    written: dict[bytes, float] = {}
    arrived: dict[bytes, float] = {}
    name = made.settings.kafka.topic_prefix + "chat.messages"
    producer: Any = AIOKafkaProducer(**_client(made), enable_idempotence=True, linger_ms=0)
    consumer: Any = AIOKafkaConsumer(name, **_client(made), auto_offset_reset="latest")
    await producer.start()
    await consumer.start()
    await consumer.seek_to_end()
    marker = uuid4().hex[:8]

    async def write(number: int) -> None:
        key = f"{marker}-{number}".encode()
        builder = producer.create_batch()
        builder.append(key=key, value=b"x" * 500, timestamp=None)
        written[key] = time.perf_counter()
        await producer.send_batch(builder, name, partition=number % 6)

    async def read() -> None:
        while len(arrived) < int(rate * seconds):
            for batch in (await consumer.getmany(timeout_ms=1_000)).values():
                arrived.update({one.key: time.perf_counter() for one in batch if one.key in written})

    try:
        await _at(rate, seconds, write, read)
    finally:
        await producer.stop()
        await consumer.stop()
    return _milliseconds(written, arrived)


async def _at(
    rate: int, seconds: float, write: Callable[[int], Awaitable[None]], read: Callable[[], Awaitable[None]]
) -> None:
    """Write so many a second while reading, until all has been read."""
    reading, began, writes = asyncio.ensure_future(read()), time.perf_counter(), list[Any]()
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(began + number / rate - time.perf_counter(), 0))
        writes.append(asyncio.ensure_future(write(number)))
    await asyncio.gather(*writes)
    async with asyncio.timeout(30):
        await reading


def _milliseconds(written: Mapping[Any, float], arrived: Mapping[Any, float]) -> list[float]:
    """The first fifth warms connections and servers up."""
    return [(arrived[key] - at) * 1_000 for key, at in list(written.items())[len(written) // 5 :]]


async def latencies(made: Stand, rate: int, seconds: float) -> list[float]:
    """Milliseconds from the call of insert_one (w: majority) to the record in a consumer's hands."""
    written: dict[bytes, float] = {}
    arrived: dict[bytes, float] = {}
    count = int(rate * seconds)
    marker = uuid4().hex[:8]
    consumer: Any = AIOKafkaConsumer(
        made.settings.kafka.topic_prefix + "chat.messages", **_client(made), auto_offset_reset="latest"
    )
    await consumer.start()
    await consumer.seek_to_end()

    async def write(number: int) -> None:
        (document,) = messages(1, seed=number + 2)
        document["_id"] = f"{marker}-{number}"
        written[f"s.{marker}-{number}".encode()] = time.perf_counter()
        await made.database["messages"].insert_one(document)

    async def read() -> None:
        while len(arrived) < count:
            for batch in (await consumer.getmany(timeout_ms=1_000)).values():
                now = time.perf_counter()
                arrived.update({one.key: now for one in batch if one.key in written})

    try:
        await _at(rate, seconds, write, read)
    finally:
        await consumer.stop()
    return _milliseconds(written, arrived)


async def measured_latencies(made: Stand, seconds: float, rounds: int) -> dict[str, float]:
    """p50 and p99 at each rate, while one tailer runs."""
    await made.place("stream")
    before, results = await made.ends(), dict[str, float]()
    gc.collect()
    gc.freeze()  # what the earlier phases left is no longer looked through in the middle of a measurement
    with tailer_process(made):
        await _until(made.ends, lambda ends: ends >= before + made.count, "it has caught up", 300)
        for rate in RATES:
            for what, measure in (
                ("", latencies),
                ("stream_", stream_latencies),
                ("producer_", producer_latencies),
            ):
                runs = [await measure(made, rate, seconds) for _ in range(rounds)]
                for name, share in (("p50", 0.50), ("p99", 0.99)):
                    found = median([percentile(run, share) for run in runs])
                    results[f"{what}{name}_ms_at_{rate}"] = found
    return results


async def measure(servers: TestServers, count: int, rounds: int, seconds: float) -> Report:
    """Everything; `seconds` 0 leaves the latencies out."""
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
        if seconds:
            _latency(report, await measured_latencies(made, seconds, rounds))
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


def _latency(report: Report, found: dict[str, float]) -> None:
    for rate in RATES:
        for name, target in (("p50", P50_TARGET), ("p99", P99_TARGET)):
            place = f"{name}_ms_at_{rate}"
            value, parts = found[place], (found["stream_" + place], found["producer_" + place])
            report.results[place] = value
            report.bounds |= {"stream_" + place: parts[0], "producer_" + place: parts[1]}
            report.ratios[f"{name}_at_{rate}_of_target"] = value / target
            report.ratios[f"{name}_at_{rate}_of_parts"] = value / sum(parts)
            what = f"insert → readable, {rate}/s, {name}"
            report.rows += [
                Row(what, value, "ms", target, "target"),
                Row(what, value, "ms", sum(parts), "stream alone + producer alone"),
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
    parser.add_argument("--seconds", type=float, default=3.0, help="of writing, for each rate and round")
    parser.add_argument("--million", action="store_true", help="memory over 1,000,000 messages instead")
    asked = parser.parse_args()
    logging.disable(logging.ERROR)
    with (
        tempfile.TemporaryDirectory() as folder,
        running_servers({}, Path(folder), Path(".eden/jars")) as servers,
    ):
        work = (
            million(servers)
            if asked.million
            else measure(servers, asked.messages, asked.rounds, asked.seconds)
        )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(work).show()


if __name__ == "__main__":
    main()
