"""Workers killed in the middle of their handlers: nothing lost, one outcome each, order kept."""

import asyncio
import itertools
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eden_memory.stages.publishing import partition_for
from tests.integration.stages.harness import PARTITIONS, Bench, asked, in_order, questions, until
from tests.servers import TestServers

pytestmark = pytest.mark.servers


Begun = list[tuple[str, int]]
"""Calls as they began: the question, and the pid of the process."""


def _start(servers: TestServers, kit: Bench, calls: Path, *how: float) -> subprocess.Popen[bytes]:
    """`how`: the seconds that a call takes, and how many of its calls end of themselves."""
    module = "tests.integration.stages.worker_process"
    name = kit.settings.mongodb.database
    arguments = [servers.mongodb_uri, servers.kafka_bootstrap, name, str(calls), *map(str, how)]
    return subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=subprocess.DEVNULL)


async def _killed(worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    await asyncio.to_thread(worker.wait)


async def test_a_worker_killed_mid_handler_loses_and_doubles_nothing(
    servers: TestServers, kit: Bench, tmp_path: Path
) -> None:
    """Each of two workers answers eight questions, has ten more under way that do not end, and is killed."""
    calls = tmp_path / "calls"
    await kit.put(questions(10, 6))
    for begun in (18, 36):
        worker = _start(servers, kit, calls, 0.0, 8)
        try:
            await until(lambda least=begun: len(_begun(calls)) >= least, f"{begun} calls")
        finally:
            await _killed(worker)
    assert len(_begun(calls)) == 36
    last = _start(servers, kit, calls, 0.05)
    try:
        answers = await kit.answers(60)
    finally:
        await _killed(last)
    texts: dict[bytes | None, set[bytes | None]] = defaultdict(set)
    for one in answers:
        texts[one.key].add(one.value)
    assert len(texts) == 60
    assert all(len(values) == 1 for values in texts.values()), "one outcome each, however often published"
    assert in_order(answers)
    repeated = [name for name, count in Counter(name for name, _ in _begun(calls)).items() if count > 1]
    assert 10 <= len(repeated) <= 2 * 10, "only what was in flight at a kill: one of each session"


def _begun(path: Path) -> Begun:
    lines = path.read_text().splitlines() if path.exists() else []
    return [(name, int(pid)) for name, _, pid in map(str.split, lines)]


async def test_a_rolling_restart_stops_no_partition_for_as_long_as_a_call(
    servers: TestServers, kit: Bench, tmp_path: Path
) -> None:
    """No call ends before the last worker is replaced: whatever waited for one would wait until then."""
    calls, rounds = tmp_path / "calls", itertools.count()
    workers = [_start(servers, kit, calls, 0.0, 0) for _ in range(3)]
    try:
        await _work_of(kit, calls, rounds, lambda pids: pids == {one.pid for one in workers})
        for number in range(3):
            workers[number].terminate()
            workers.append(_start(servers, kit, calls, 0.0, 0))
            told = {one.pid for one in workers[: number + 1]}
            await _work_of(kit, calls, rounds, lambda pids, told=told: not pids & told)
            assert workers[number].poll() is None, "its calls go on"
        calls.with_suffix(".let").touch()
        assert [await asyncio.to_thread(one.wait) for one in workers[:3]] == [0, 0, 0]
        asked = next(rounds) * PARTITIONS
        assert len({one.key for one in await kit.answers(asked)}) == asked
    finally:
        for worker in workers:
            await _killed(worker)


async def _work_of(kit: Bench, calls: Path, rounds: Iterator[int], done: Callable[[set[int]], bool]) -> None:
    """Questions for every partition, again and again, until those who begin them are as wanted."""

    async def round_() -> bool:
        names = _one_of_each_partition(next(rounds))
        await kit.put([asked(name, 0) for name in names])
        wanted = {f"{name}-0" for name in names}
        await until(lambda: wanted <= {name for name, _ in _begun(calls)}, "work in every partition")
        return done({pid for name, pid in _begun(calls) if name in wanted})

    await until(round_, "work of those who are to do it")


def _one_of_each_partition(number: int) -> list[str]:
    """Sessions that have never been asked."""
    names = (f"r{number}.{one}" for one in itertools.count())
    found: dict[int, str] = {}
    while len(found) < PARTITIONS:
        name = next(names)
        found.setdefault(partition_for(name.encode(), PARTITIONS), name)
    return list(found.values())
