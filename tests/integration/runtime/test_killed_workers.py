"""Workers killed in the middle of their handlers: nothing lost, one outcome each, order kept."""

import asyncio
import itertools
import subprocess
import sys
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from eden_memory.runtime.stages.publishing import partition_for
from tests.integration.runtime.harness import PARTITIONS, Bench, asked, in_order, questions, until
from tests.servers import TestServers

pytestmark = pytest.mark.servers


def _start(servers: TestServers, kit: Bench, calls: Path, seconds: float) -> subprocess.Popen[bytes]:
    module = "tests.integration.runtime.worker_process"
    name = kit.settings.mongodb.database
    arguments = [servers.mongodb_uri, servers.kafka_bootstrap, name, str(calls), str(seconds)]
    return subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=subprocess.DEVNULL)


async def test_a_worker_killed_mid_handler_loses_and_doubles_nothing(
    servers: TestServers, kit: Bench, tmp_path: Path
) -> None:
    calls = tmp_path / "calls"
    await kit.put(questions(10, 6))
    for kill_at in (12, 30):
        worker = _start(servers, kit, calls, 0.3)
        try:
            await until(lambda at=kill_at: _lines(calls) >= at, f"{kill_at} calls")
        finally:
            worker.kill()
            await asyncio.to_thread(worker.wait)
    last = _start(servers, kit, calls, 0.05)
    try:
        answers = await kit.answers(60, seconds=60)
    finally:
        last.kill()
        await asyncio.to_thread(last.wait)
    texts: dict[bytes | None, set[bytes | None]] = defaultdict(set)
    for one in answers:
        texts[one.key].add(one.value)
    assert len(texts) == 60
    assert all(len(values) == 1 for values in texts.values()), "one outcome each, however often published"
    assert in_order(answers)
    names = [line.split()[0] for line in calls.read_text().splitlines()]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    assert len(repeated) <= 2 * 10, "only what was in flight at a kill: one of each session"


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


async def test_a_rolling_restart_stops_no_partition_for_as_long_as_a_call(
    servers: TestServers, kit: Bench, tmp_path: Path
) -> None:
    call = 6.0
    calls = tmp_path / "calls"
    workers = [_start(servers, kit, calls, call) for _ in range(3)]
    try:
        feeding = asyncio.create_task(_feed(kit))
        await until(lambda: _lines(calls) >= 60, "work under way", 60)
        for number in range(3):
            workers[number].terminate()
            workers.append(_start(servers, kit, calls, call))
            assert await asyncio.to_thread(workers[number].wait) == 0
        restarted = _lines(calls)
        await until(lambda: _lines(calls) >= restarted + 60, "work after it", 60)
        feeding.cancel()
    finally:
        for worker in workers:
            worker.kill()
            await asyncio.to_thread(worker.wait)
    gap = _longest_gap(calls)
    assert gap < call / 2


async def _feed(kit: Bench) -> None:
    """A question of a new session every 50 ms: each partition has something to begin all the time."""
    for number in itertools.count():
        await kit.put([asked(f"f{number}", 0)])
        await asyncio.sleep(0.05)


def _longest_gap(calls: Path) -> float:
    begun: dict[int, list[float]] = defaultdict(list)
    for line in calls.read_text().splitlines():
        name, moment = line.split()
        begun[partition_for(name.rpartition("-")[0].encode(), PARTITIONS)].append(float(moment))
    assert len(begun) == PARTITIONS
    return max(later - earlier for times in begun.values() for earlier, later in pairwise(sorted(times)))
