"""Lanes against their bound, one at a time, and FastStream's batches; and what the runtime costs per record.

The bound supposes that the future is known (a long call that comes last cannot be begun earlier), so beside it
stands what round robin reaches in a simulation without any cost. FastStream's batches keep no order per key.

`python -m tests.bench.lanes [--records N] [--overhead N]`: real servers, a namespace of its own, a table for
people and one JSON object as the last line.
"""

import argparse
import asyncio
import gc
import heapq
import json
import logging
import math
import os
import random
import resource
import statistics
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import structlog
from faststream import AckPolicy
from faststream.kafka import KafkaBroker
from pydantic import SecretStr
from rich.console import Console
from rich.table import Table

from eden_memory.settings import KafkaSettings, MongoSettings, Settings
from eden_memory.stages.stage import Delivery, Emitted
from eden_memory.stages.worker import Bounds, Worker
from tests.bench import formation_trigger as trigger
from tests.integration.stages.harness import Asked, Bench, asked, bench, consuming, running, stage, until
from tests.servers import running_servers

KEYS, PARTITIONS, CAP = 500, 6, 200
MEDIAN, P99 = 1.0, 8.0
SEEDS = (7, 8, 9)
SIGMA = math.log(P99 / MEDIAN) / 2.3263
"""Log-normal: the 99th percentile is 2.3263 standard deviations above the median of the logarithm."""


@dataclass(frozen=True)
class Load:
    """Questions in arrival order and the latency of each one's handler, in seconds."""

    keys: list[tuple[str, int]]
    latency: dict[str, float]

    @property
    def bound(self) -> float:
        """Seconds that no scheduler in order per key and with the cap can beat."""
        total: dict[str, float] = defaultdict(float)
        for session, number in self.keys:
            total[session] += self.latency[f"{session}-{number}"]
        return max(*total.values(), sum(total.values()) / CAP)


def simulated_seconds(work: Load) -> float:
    """What round robin over the keys reaches with the same latencies and no cost of its own."""
    waiting: dict[str, deque[float]] = defaultdict(deque)
    for session, number in work.keys:
        waiting[session].append(work.latency[f"{session}-{number}"])
    ready = deque(waiting)
    running: list[tuple[float, str]] = []
    now = 0.0
    while ready or running:
        while ready and len(running) < CAP:
            session = ready.popleft()
            heapq.heappush(running, (now + waiting[session].popleft(), session))
        now, session = heapq.heappop(running)
        if waiting[session]:
            ready.append(session)
    return now


def load(records: int, *, zipf: bool, seed: int) -> Load:
    """`records` over 500 keys, evenly or by Zipf's law (exponent 1), with log-normal latencies."""
    dice = random.Random(seed)
    weights = [1 / (rank + 1) if zipf else 1.0 for rank in range(KEYS)]
    numbers: dict[str, int] = defaultdict(int)
    keys: list[tuple[str, int]] = []
    for name in (f"s{one}" for one in dice.choices(range(KEYS), weights, k=records)):
        keys.append((name, numbers[name]))
        numbers[name] += 1
    latency = {f"{name}-{number}": dice.lognormvariate(math.log(MEDIAN), SIGMA) for name, number in keys}
    return Load(keys, latency)


async def lanes_seconds(kit: Bench, work: Load) -> float:
    """Time of our worker from the first handler to the last answer decided, outcomes stored."""
    done, started = 0, 0.0

    async def handler(deliveries: Sequence[Delivery]) -> list[Emitted]:
        nonlocal done, started
        started = started or time.monotonic()
        await asyncio.sleep(work.latency[deliveries[0].id])
        done += 1
        return []

    await kit.put([asked(*key) for key in work.keys])
    worker = Worker(stage(handler, at_once=CAP), kit.around(bounds=Bounds(records=5_000)))
    async with running(worker):
        await until(lambda: done == len(work.keys), "all handled", 3_600)
        return time.monotonic() - started


async def faststream_seconds(kit: Bench, work: Load, count: int) -> float:
    """Time of FastStream's batch subscriber with gather for the first `count` records, 200 a batch."""
    done, started = 0, 0.0
    broker = KafkaBroker(kit.client["bootstrap_servers"], logger=None)

    async def handle(batch: list[Any]) -> None:
        nonlocal done, started
        started = started or time.monotonic()
        await asyncio.gather(*(asyncio.sleep(work.latency[_name(one)]) for one in batch))
        done += len(batch)

    subscriber = broker.subscriber(
        kit.topic(Asked),
        group_id=f"{kit.group}.faststream",
        batch=True,
        max_records=CAP,
        auto_offset_reset="earliest",
        ack_policy=AckPolicy.ACK,
    )
    subscriber(handle)
    await kit.put([asked(*key) for key in work.keys[:count]])
    await broker.start()
    try:
        await until(lambda: done >= count, "all handled", 3_600)
        return time.monotonic() - started
    finally:
        await broker.stop()


def _name(question: dict[str, Any]) -> str:
    return f"{question['session']}-{question['number']}"


Measure = Callable[[Bench, int], Awaitable[float]]


async def bare_cpu(kit: Bench, count: int) -> float:
    """CPU seconds of aiokafka's getmany alone over `count` records."""
    seen, before = 0, _cpu()
    async with consuming(kit.client, kit.topic(Asked)) as consumer:
        while seen < count:
            seen += sum(map(len, (await consumer.getmany(timeout_ms=200, max_records=500)).values()))
        return _cpu() - before


async def faststream_cpu(kit: Bench, count: int) -> float:
    """CPU seconds of FastStream's plain subscriber with a handler that does nothing."""
    seen = 0
    broker = KafkaBroker(kit.client["bootstrap_servers"], logger=None)

    async def handle(one: dict[str, Any]) -> None:
        nonlocal seen
        seen += 1

    group = f"{kit.group}.plain.{uuid4().hex}"
    broker.subscriber(kit.topic(Asked), group_id=group, auto_offset_reset="earliest")(handle)
    before = _cpu()
    await broker.start()
    try:
        await until(lambda: seen >= count, "all handled", 600)
        return _cpu() - before
    finally:
        await broker.stop()


async def lanes_cpu(kit: Bench, count: int, **fields: Any) -> float:
    """CPU seconds of our worker with a handler that does nothing, everything committed."""
    seen = 0

    async def handler(deliveries: Sequence[Delivery]) -> list[Emitted]:
        nonlocal seen
        seen += len(deliveries)
        return []

    around = replace(kit.under(uuid4().hex), bounds=Bounds())
    worker = Worker(stage(handler, **fields), around)
    before = _cpu()
    async with running(worker):
        await until(lambda: seen >= count, "all handled", 1_200)
        return _cpu() - before


def _cpu() -> float:
    gc.collect()
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def _latency(make: Callable[[], Any], records: int, rounds: int) -> dict[str, float]:
    """Medians over the seeds; FastStream once, because nothing in it depends on the order of keys."""
    results: dict[str, float] = {}
    for name, zipf, seeds in (("uniform", False, SEEDS[:rounds]), ("zipf", True, SEEDS[:1])):
        count = records // 4 if zipf else records  # the hottest of Zipf's keys has a seventh of all
        figures: dict[str, list[float]] = defaultdict(list)
        for seed in seeds:
            work = load(count, zipf=zipf, seed=seed)
            async with make() as kit:
                ours = await lanes_seconds(kit, work)
            figures["lanes_per_s"].append(count / ours)
            figures["bound_per_s"].append(count / work.bound)
            figures["of_bound"].append(work.bound / ours)
            figures["of_simulated"].append(simulated_seconds(work) / ours)
            figures["one_at_a_time_per_s"].append(count / sum(work.latency.values()))
        results |= {f"{name}_{figure}": statistics.median(values) for figure, values in figures.items()}
        work, sample = load(count, zipf=zipf, seed=SEEDS[0]), min(count, 500)
        async with make() as kit:
            results[f"{name}_faststream_per_s"] = sample / await faststream_seconds(kit, work, sample)
    return results


async def _overhead(make: Callable[[], Any], count: int, rounds: int) -> dict[str, float]:
    def no_store(kit: Bench, number: int) -> Awaitable[float]:
        return lanes_cpu(kit, number, decides=False)

    def in_batches(kit: Bench, number: int) -> Awaitable[float]:
        return lanes_cpu(kit, number, decides=False, batch=500)

    measures: dict[str, Measure] = {
        "bare_us": bare_cpu,
        "lanes_us": no_store,
        "batches_us": in_batches,
        "faststream_us": faststream_cpu,
    }
    async with make() as kit:
        for start in range(0, count, 10_000):
            await kit.put([asked(f"s{one % 5_000}", one // 5_000) for one in range(start, start + 10_000)])
        results = {
            name: 1e6 * statistics.median([await measure(kit, count) for _ in range(rounds)]) / count
            for name, measure in measures.items()
        }
        results["lanes_with_store_us"] = 1e6 * await lanes_cpu(kit, count // 5) / count * 5
    return results


def _settings(mongodb: str, kafka: str) -> Settings:
    name = f"bench{uuid4().hex[:8]}"
    return Settings(
        mongodb=MongoSettings(uri=SecretStr(mongodb), database=name),  # pyright: ignore[reportCallIssue]
        kafka=KafkaSettings(bootstrap=kafka, topic_prefix=f"{name}.", group_prefix=f"{name}."),  # pyright: ignore[reportCallIssue]
    )


def _show(results: dict[str, float]) -> None:
    table = Table("figure", "value", title="lanes: records/s under LLM latency; CPU per record")
    for name, value in results.items():
        table.add_row(name, f"{value:,.2f}")
    Console().print(table)


def report(results: dict[str, float]) -> dict[str, Any]:
    """The benchmark as one JSON object: results, bounds and the ratios that tests look at."""
    bounds = {
        name: value for name, value in results.items() if name.endswith("bound_per_s") or name == "bare_us"
    }
    ratios: dict[str, float] = {}
    for name in ("uniform", "zipf"):
        if f"{name}_lanes_per_s" in results:
            ours = results[f"{name}_lanes_per_s"]
            ratios |= {f"{name}_{of}": results[f"{name}_{of}"] for of in ("of_bound", "of_simulated")}
            ratios[f"{name}_over_faststream"] = ours / results[f"{name}_faststream_per_s"]
            ratios[f"{name}_over_one_at_a_time"] = ours / results[f"{name}_one_at_a_time_per_s"]
    if "lanes_us" in results:
        ratios["lanes_over_faststream_cpu"] = results["lanes_us"] / results["faststream_us"]
    if "trigger_stage_per_s" in results:
        for of in ("left", "all"):
            bounds[f"trigger_{of}_per_s"] = results[f"trigger_{of}_per_s"]
            ratios[f"trigger_of_{of}"] = results["trigger_stage_per_s"] / results[f"trigger_{of}_per_s"]
    return {"bench": "lanes", "results": results, "bounds": bounds, "ratios": ratios}


async def main(records: int, overhead: int, rounds: int, mongodb: str, kafka: str) -> dict[str, float]:
    """Both parts, the ones with 0 records left out."""

    def make() -> Any:
        return bench(_settings(mongodb, kafka), PARTITIONS)

    results: dict[str, float] = {}
    if records:
        results |= await _latency(make, records, rounds)
    if overhead:
        results |= await _overhead(make, overhead, rounds)
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_500, help="under LLM latency, per key distribution")
    parser.add_argument(
        "--overhead", type=int, default=100_000, help="for the CPU per record; 0: leave it out"
    )
    parser.add_argument(
        "--trigger", type=int, default=100_000, help="messages for formation-trigger; 0: leave it out"
    )
    parser.add_argument("--sessions", type=int, default=20_000, help="of formation-trigger's messages")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with (
        tempfile.TemporaryDirectory() as folder,
        running_servers(os.environ, Path(folder), Path(".eden/jars")) as servers,
    ):
        figures = asyncio.run(
            main(
                arguments.records,
                arguments.overhead,
                arguments.rounds,
                servers.mongodb_uri,
                servers.kafka_bootstrap,
            )
        )
        if arguments.trigger:
            where = servers.mongodb_uri, servers.kafka_bootstrap
            rates = trigger.figures(*where, arguments.trigger, arguments.sessions, arguments.rounds)
            figures |= {f"trigger_{name}_per_s": rate for name, rate in rates.items()}
    _show(figures)
    print(json.dumps(report(figures)))  # noqa: T201 - the last line is for programs
