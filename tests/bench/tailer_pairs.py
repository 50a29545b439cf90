"""The tailer beside the least that a tailer can be, by turns: insert → consumer, and catching up.

`python -m tests.bench.tailer_pairs [--pairs N] [--seconds N] [--rate N] [--messages N]`: private servers; tailer,
loader and both consumers (of uncommitted and of committed records) are processes of their own. A table, and one JSON
object as the last line: medians over the pairs; the ratios are medians of the pairs' ratios.
"""

import argparse
import asyncio
import logging
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import uvloop

from tests.bench.report import Report, Row, median, percentile
from tests.bench.tailer import (
    TAILER,
    Stand,
    drained,
    finished_records,
    passed,
    produced,
    stand,
    tailer_process,
    until,
)
from tests.bench.tailer_ends import End, Load, Read
from tests.servers import TestServers, running_servers

ISOLATIONS = ("read_uncommitted", "read_committed")
Figures = dict[str, float]


def minimal(made: Stand, *token: str) -> tuple[str, ...]:
    """The command of the minimal tailer; without a token it begins now."""
    names = made.uri, made.settings.mongodb.database, str(made.settings.kafka.bootstrap), made.topic
    return (sys.executable, "-m", "tests.bench.minimal_tailer", *names, *token)


async def latencies(made: Stand, command: Sequence[str], rate: int, seconds: float) -> Figures:
    """p50 and p99 in milliseconds, from the call of insert_one to the record in a consumer's hands."""
    await made.place_now()
    with tailer_process(made, command):
        await _follows(made)
        marker, count = uuid4().hex[:8], int(rate * seconds)
        bootstrap = str(made.settings.kafka.bootstrap)
        readers = [
            await End.start(Read(bootstrap, made.topic, marker, isolation, count)) for isolation in ISOLATIONS
        ]
        loader = await End.start(Load(made.uri, made.settings.mongodb.database, marker, rate, count))
        written = await loader.times()
        found: Figures = {}
        for isolation, reader in zip(ISOLATIONS, readers, strict=True):
            took = _milliseconds(written, await reader.times())
            found |= {f"{isolation}_p50": percentile(took, 0.5), f"{isolation}_p99": percentile(took, 0.99)}
        return found


def _milliseconds(written: dict[str, float], arrived: dict[str, float]) -> list[float]:
    """The first fifth warms connections and servers up; what never came is worth a minute."""
    late = 60.0
    return [
        (arrived.get(key, at + late) - at) * 1_000 for key, at in list(written.items())[len(written) // 5 :]
    ]


async def _follows(made: Stand) -> None:
    """Until what is written arrives."""
    before = await made.ends()

    async def probed() -> int:
        await made.database["messages"].insert_one({"session_id": "probe", "content": "x", "role": "user"})
        await asyncio.sleep(0.2)
        return await made.ends()

    await until(probed, lambda ends: ends > before, "a first record")


async def caught_up(made: Stand, command: Sequence[str]) -> Figures:
    """Messages a second, CPU seconds per 1,000 messages and megabytes, over all messages waiting."""
    passage = await passed(made, "stream", command)
    memory = max(used for _, used in passage.memory)
    return {"per_s": passage.rate, "cpu_s_per_1000": passage.cpu / 1_000, "memory_mb": memory}


async def measure(servers: TestServers, pairs: int, count: int, rate: int, seconds: float) -> Report:
    """Pair after pair, each with the other one first."""
    report = Report("tailer-pairs", f"the tailer beside the minimal tailer, {pairs} pairs at {rate}/s")
    both: dict[str, list[Figures]] = {"ours": [], "minimal": []}
    serial: list[float] = []
    async with stand(servers, count) as made:
        records = finished_records(made, min(count, 50_000))
        for number in range(pairs):
            serial.append(1 / (1 / await drained(made) + 1 / await produced(made, records)))
            live = {"ours": TAILER, "minimal": minimal(made)}
            late = {"ours": TAILER, "minimal": minimal(made, made.token)}
            for name in sorted(both, reverse=number % 2 == 0):
                found = await caught_up(made, late[name])
                both[name].append(found | await latencies(made, live[name], rate, seconds))
    _compare(report, both["ours"], both["minimal"], serial)
    return report


def _compare(
    report: Report, ours: Sequence[Figures], least: Sequence[Figures], serial: Sequence[float]
) -> None:
    for name in ours[0]:
        mine, other = [figures[name] for figures in ours], [figures[name] for figures in least]
        report.results[name], report.bounds[name] = median(mine), median(other)
        report.results |= {f"{name}_least": min(mine), f"{name}_most": max(mine)}
        report.ratios[name] = median([value / bound for value, bound in zip(mine, other, strict=True)])
        report.rows.append(Row(name, median(mine), "", median(other), "minimal tailer"))
    shares = [figures["per_s"] / bound for figures, bound in zip(ours, serial, strict=True)]
    report.ratios["catch_up_of_serial"] = median(shares)
    report.rows.append(
        Row("catch-up", report.results["per_s"], "1/s", median(serial), "stream, then producer")
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0, help="of writing")
    parser.add_argument("--rate", type=int, default=500, help="messages written a second")
    parser.add_argument("--messages", type=int, default=100_000, help="waiting, to catch up with")
    asked = parser.parse_args()
    logging.disable(logging.ERROR)
    with (
        tempfile.TemporaryDirectory() as folder,
        running_servers(os.environ, Path(folder), Path(".eden/jars")) as servers,
    ):
        work = measure(servers, asked.pairs, asked.messages, asked.rate, asked.seconds)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(work).show()


if __name__ == "__main__":
    main()
