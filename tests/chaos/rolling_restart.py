"""How long a partition stands still while three workers are restarted one after the other under slow calls.

`python -m tests.chaos.rolling_restart [--call 8]`: questions of ever new sessions come in all the time, so each
partition has something to begin at any moment; the longest pause between two beginnings is what is measured.
"""

import argparse
import asyncio
import itertools
import logging
import subprocess
import sys
import tempfile
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

from pydantic import SecretStr

from eden_memory.settings import KafkaSettings, MongoSettings, Settings
from eden_memory.stages.publishing import partition_for
from tests.chaos.report import Outcome, show
from tests.chaos.servers import private_servers
from tests.chaos.waiting import until
from tests.integration.stages import worker_process
from tests.integration.stages.harness import PARTITIONS, Bench, asked, bench

NAME = "rolling"
PAUSE = 0.04
LIMIT = 3.0


async def measure(call: float, folder: Path, jars: Path) -> dict[str, object]:
    """Restart each of three workers; the figures."""
    calls = folder / "calls"
    async with private_servers(folder, jars, replica_set=False) as servers:
        settings = Settings(
            mongodb=MongoSettings(uri=SecretStr(servers.mongo.endpoint), database=NAME),  # pyright: ignore[reportCallIssue]
            kafka=KafkaSettings(  # pyright: ignore[reportCallIssue]
                bootstrap=servers.kafka.endpoint, topic_prefix=f"{NAME}.", group_prefix=f"{NAME}."
            ),
        )
        command = [sys.executable, "-m", worker_process.__name__, servers.mongo.endpoint]
        command += [servers.kafka.endpoint, NAME, str(calls), str(call)]
        async with bench(settings) as kit:
            began = await _restarted(kit, command, calls, call)
    times = _beginnings(calls, began)
    gaps = {number: max(b - a for a, b in pairwise(moments)) for number, moments in times.items()}
    steady = {number: len(moments) / (moments[-1] - moments[0]) for number, moments in times.items()}
    return {
        "a call, s": call,
        "calls begun": sum(map(len, times.values())),
        "calls begun a second and partition": round(min(steady.values()), 1),
        "partitions": len(times),
        "longest stop of a partition, s": round(max(gaps.values()), 2),
        "by partition, s": ", ".join(f"{gap:.2f}" for _, gap in sorted(gaps.items())),
    }


async def _restarted(kit: Bench, command: list[str], calls: Path, call: float) -> float:
    """Feed, restart one worker after the other, go on for two calls; when the restarts began."""
    workers = [_start(command) for _ in range(3)]
    feeding = asyncio.create_task(_feed(kit))
    try:
        await until(lambda: _count(calls) > 3 * call / PAUSE / 2, "work under way")
        began = _last(calls)
        for number in range(3):
            workers.append(_start(command))
            workers[number].terminate()
            if await asyncio.to_thread(workers[number].wait) != 0:
                raise RuntimeError(f"worker {number} did not end with 0")
        await asyncio.sleep(2 * call)
        return began
    finally:
        feeding.cancel()
        for worker in workers:
            worker.kill()
            await asyncio.to_thread(worker.wait)


def _start(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


async def _feed(kit: Bench) -> None:
    for number in itertools.count():
        await kit.put([asked(f"f{number}", 0)])
        await asyncio.sleep(PAUSE)


def _lines(path: Path) -> list[list[str]]:
    return [line.split()[:2] for line in path.read_text().splitlines()] if path.exists() else []


def _count(path: Path) -> int:
    return len(_lines(path))


def _last(path: Path) -> float:
    return max(float(moment) for _, moment in _lines(path))


def _beginnings(path: Path, began: float) -> dict[int, list[float]]:
    times: dict[int, list[float]] = defaultdict(list)
    for name, moment in _lines(path):
        if float(moment) >= began:
            session = name.rpartition("-")[0].encode()
            times[partition_for(session, PARTITIONS)].append(float(moment))
    return {number: sorted(moments) for number, moments in times.items()}


def main(arguments: list[str]) -> int:
    """One measurement, shown; 0 when no partition stood still for longer than 3 s."""
    parser = argparse.ArgumentParser(prog="tests.chaos.rolling_restart")
    parser.add_argument("--call", type=float, default=8.0, help="seconds that each call takes")
    given = parser.parse_args(arguments)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="eden-rolling-") as temporary:
        figures = asyncio.run(measure(given.call, Path(temporary), Path(".eden/jars").absolute()))
    longest = figures["longest stop of a partition, s"]
    late = [f"{longest} s"] if isinstance(longest, float) and longest > LIMIT else []
    show("rolling restart", Outcome({f"longer than {LIMIT:.0f} s": late}, figures))
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
