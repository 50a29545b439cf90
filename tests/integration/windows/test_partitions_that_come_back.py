"""A partition moves to another worker and back: the first one goes on from what the other has stored."""

import sys
from itertools import count
from pathlib import Path

import pytest

from eden_memory.stages.publishing import partition_for
from eden_memory.stages.stage import Delivery
from eden_memory.stages.worker import Worker
from tests.awaiting import gives, until
from tests.integration.stages_on_servers import PARTITIONS
from tests.integration.windows.harness import Kit, changed
from tests.integration.windows.test_killed_trigger_workers import CLOSES_AT, worker
from tests.servers import TestServers
from tests.unit.windows.records import message, names, watermark

pytestmark = pytest.mark.servers
HOLDS = "tests.integration.windows.held_trigger"
FORMS = 30.0
"""Seconds in which a window is asked for."""


def sessions() -> list[str]:
    """A session of each partition: nothing else happens there."""
    found: dict[int, str] = {}
    for number in count():
        found.setdefault(partition_for(f"s.{number}".encode(), PARTITIONS), f"s.{number}")
        if len(found) == PARTITIONS:
            break
    return list(found.values())


def said(first: int, last: int) -> list[Delivery]:
    """Messages of each session by their numbers, a second apart."""
    numbers = range(first, last + 1)
    return [message(f"{one}-{n}", one, n, n / 60) for n in numbers for one in sessions()]


def everywhere(number: int, minutes: float) -> list[Delivery]:
    return [watermark(number, minutes, partition) for partition in range(PARTITIONS)]


def whole(last: int) -> set[tuple[str, ...]]:
    """The messages of the windows that hold everything said."""
    return {tuple(f"{one}-{n}" for n in range(1, last + 1)) for one in sessions()}


def held(one: Worker) -> int:
    return len(one.membership.homes)


async def waiting(kit: Kit) -> int:
    return len(await kit.waiting())


async def windows(kit: Kit) -> int:
    return await kit.database["memory_windows"].count_documents({})


async def test_a_session_with_a_message_that_another_worker_stored_goes_cold(kit: Kit) -> None:
    async with kit.topic("memory.formations") as topic, kit.running() as first:
        await kit.put(said(1, 3))
        await until(lambda: gives(waiting(kit), 3 * PARTITIONS), "three messages of each session wait")
        async with kit.running() as second:
            await until(lambda: 0 < held(second) == PARTITIONS - held(first), "they share the partitions")
            await kit.put(said(4, 4))
            await until(lambda: gives(waiting(kit), 4 * PARTITIONS), "the fourth waits, too")
        await until(lambda: held(first) == PARTITIONS, "the first has all partitions again")
        await kit.put(everywhere(60, 15))
        found = await topic.until(PARTITIONS, FORMS)
    assert {tuple(names(one)) for one in found} == whole(4)


@pytest.mark.slow
async def test_a_window_of_a_worker_that_was_killed_before_it_published_is_asked_for(
    servers: TestServers, kit: Kit, tmp_path: Path
) -> None:
    settings = changed(kit.settings, windows={"messages": CLOSES_AT})
    stored = tmp_path / "stored"
    command = (sys.executable, "-m", HOLDS, str(stored))
    async with kit.topic("memory.formations") as topic, kit.running(settings) as first:
        await kit.put(said(1, CLOSES_AT - 1))
        await until(lambda: gives(waiting(kit), (CLOSES_AT - 1) * PARTITIONS), "one more fills each window")
        with worker(servers, kit, tmp_path / "log", command):
            await until(lambda: 0 < held(first) < PARTITIONS, "the other has some of the partitions")
            await kit.put(said(CLOSES_AT, CLOSES_AT))
            await until(stored.exists, "the other has stored its window")
        await until(lambda: held(first) == PARTITIONS, "the first has all partitions again")
        found = await topic.until(PARTITIONS, FORMS)
    assert {tuple(names(one)) for one in found} == whole(CLOSES_AT)


async def test_a_session_that_another_worker_left_waiting_for_its_document_goes_on(kit: Kit) -> None:
    settings = changed(kit.settings, windows={"messages": CLOSES_AT}, sessions={"collection": "sessions"})
    async with kit.topic("memory.formations") as topic, kit.running(settings) as first:
        await kit.put(said(1, CLOSES_AT - 1))
        await until(lambda: gives(waiting(kit), (CLOSES_AT - 1) * PARTITIONS), "one more fills each window")
        async with kit.running(settings) as second:
            await until(lambda: 0 < held(second) == PARTITIONS - held(first), "they share the partitions")
            await kit.put(said(CLOSES_AT, CLOSES_AT))
            await until(lambda: gives(windows(kit), PARTITIONS), "the windows are closed")
        await until(lambda: held(first) == PARTITIONS, "the first has all partitions again")
        documents = [{"_id": one.removeprefix("s."), "users": [1]} for one in sessions()]
        await kit.database["sessions"].insert_many(documents)
        await kit.put(everywhere(60, 1))
        found = await topic.until(PARTITIONS, FORMS)
    assert {tuple(names(one)) for one in found} == whole(CLOSES_AT)
