"""Workers killed in the middle of their handlers: nothing lost, one outcome each, order kept."""

import asyncio
import itertools
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupCoordinatorNotAvailableError

from eden_memory.kafka.broken_clients import remove_dead_members
from eden_memory.stages import membership
from eden_memory.stages.publishing import partition_for
from eden_memory.stages.worker import Worker
from tests.integration.stages.harness import (
    PARTITIONS,
    Bench,
    asked,
    in_order,
    questions,
    running,
    stage,
    until,
)
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


async def test_a_killed_member_leaves_its_group_when_its_successor_starts_and_a_living_one_stays(
    servers: TestServers, kit: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[str] = []

    async def remove(client: dict[str, Any], group: str) -> list[str]:
        removed.extend(await remove_dead_members(client, group))
        return removed

    monkeypatch.setattr(membership, "remove_dead_members", remove)
    processes = [_start(servers, kit, tmp_path / "calls", 0.0) for _ in range(2)]
    try:
        await until(lambda: _has_members(kit, 2), "both are members")
        living = {one for one in await _members(kit) if f".{processes[1].pid}." in one}
        await _killed(processes[0])
        worker = Worker(stage(), kit.around())
        async with running(worker):
            await until(lambda: worker.membership.homes, "the successor has partitions")
            assert [client_id.split(".")[2] for client_id in removed] == [str(processes[0].pid)]
            assert len(living) == 1
            assert living < set(await _members(kit)), "it was not asked to join as somebody new"
    finally:
        for process in processes:
            await _killed(process)


async def _has_members(kit: Bench, count: int) -> bool:
    return len(await _members(kit)) == count


async def _members(kit: Bench) -> list[str]:
    """The ids of the group's members: their client ids, and what tells them apart."""
    admin: Any = AIOKafkaAdminClient(**kit.client)
    await admin.start()
    try:
        (described,) = await admin.describe_consumer_groups([kit.group])
    except GroupCoordinatorNotAvailableError:
        return []  # it is the broker's first group
    finally:
        await admin.close()
    return [member_id for member_id, *_ in described.groups[0][5]]


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
        if as_wanted := done({pid for name, pid in _begun(calls) if name in wanted}):
            return as_wanted
        await asyncio.sleep(1.0)  # calls that go on take the places of a worker, which are bounded
        return False

    await until(round_, "work of those who are to do it")


def _one_of_each_partition(number: int) -> list[str]:
    """Sessions that have never been asked."""
    names = (f"r{number}.{one}" for one in itertools.count())
    found: dict[int, str] = {}
    while len(found) < PARTITIONS:
        name = next(names)
        found.setdefault(partition_for(name.encode(), PARTITIONS), name)
    return list(found.values())
