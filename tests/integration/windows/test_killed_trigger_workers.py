"""Workers that share the partitions and are killed at work: the windows are those of a quiet run."""

import os
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from eden_memory.assembly.mongo_setup import set_up
from eden_memory.stages.stage import Delivery
from eden_memory.windows.window_rule import Limits
from tests.integration.stages_on_servers import PARTITIONS, Topic
from tests.integration.windows.harness import Kit
from tests.servers import TestServers
from tests.unit.windows.memory_store import MemoryStore
from tests.unit.windows.records import (
    asked,
    formations,
    gone,
    message,
    names,
    run,
    trigger,
    watermark,
)

pytestmark = pytest.mark.servers
COMMAND = (sys.executable, "-m", "tests.quick_sessions", "run", "formation-trigger")
CLOSES_AT, PART = 5, 200


def conversation(messages: int, sessions: int, seed: int) -> list[Delivery]:
    """Messages of many sessions at once, some edited or deleted later, some sessions formed by hand."""
    dice = random.Random(seed)
    log: list[Delivery] = []
    written: list[tuple[str, str]] = []
    for number in range(1, messages + 1):
        session, minutes = f"s.{dice.randrange(sessions)}", number / 1_000
        roll = dice.random()
        if roll < 0.05 and written:
            name, home = dice.choice(written[-300:])
            log.append(message(name, home, number, minutes, f"edited {number}"))
        elif roll < 0.08 and written:
            log.append(gone(*written.pop(dice.randrange(len(written))), number, minutes))
        elif roll < 0.10:
            log.append(asked(session, number, minutes))
        else:
            written.append((f"s.m{number}", session))
            log.append(message(f"s.m{number}", session, number, minutes))
    return log


@contextmanager
def worker(
    servers: TestServers, kit: Kit, log: Path, command: Sequence[str] = COMMAND
) -> Generator[subprocess.Popen[bytes]]:
    """A process of the stage, killed at the end if not before."""
    name = kit.settings.mongodb.database
    given = {
        "EDEN_MONGODB_URI": servers.mongodb_uri,
        "EDEN_MONGODB_DATABASE": name,
        "EDEN_KAFKA_BOOTSTRAP": servers.kafka_bootstrap,
        "EDEN_KAFKA_TOPIC_PREFIX": kit.settings.kafka.topic_prefix,
        "EDEN_KAFKA_GROUP_PREFIX": kit.settings.kafka.group_prefix,
        "EDEN_WINDOWS_MESSAGES": str(CLOSES_AT),
    }
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env={**os.environ, **given}, stdout=output, stderr=output, cwd=Path.cwd()
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def by_key(topic: Topic) -> dict[bytes, set[tuple[object, ...]]]:
    """What was ever published under each key: headers and value."""
    found: dict[bytes, set[tuple[object, ...]]] = defaultdict(set)
    for one in topic.records:
        found[one.key].add((one.value, tuple(one.headers)))
    return found


async def test_killed_and_concurrent_workers_close_the_windows_of_a_quiet_run(
    servers: TestServers, kit: Kit, tmp_path: Path
) -> None:
    await set_up(kit.database, kit.settings.names)
    log = conversation(3_000, 80, seed=7)
    quiet = await run(trigger(MemoryStore(Limits(messages=CLOSES_AT))), log, [watermark(10_000, 30)])
    expected = {one.formation_id: names(one) for one in formations(quiet)}
    parts = (log[at : at + PART] for at in range(0, len(log), PART))
    output = tmp_path / "workers.log"
    async with kit.topic("memory.formations") as topic:
        for share in (0.02, 0.4):
            with worker(servers, kit, output), worker(servers, kit, output):
                await _told(kit, topic, parts, int(len(expected) * share))
        for part in parts:
            await kit.put(part)
        await kit.put(watermark(10_000, 30, partition) for partition in range(PARTITIONS))
        with worker(servers, kit, output):
            await topic.until(len(expected))
            await topic.read()
        found = {one.formation_id: names(one) for one in topic.windows}
        assert found == expected
        assert all(len(values) == 1 for values in by_key(topic).values()), "a repeat is the same record"
    await _every_message_is_somewhere(kit, log, found)


async def _told(kit: Kit, topic: Topic, parts: Iterator[list[Delivery]], least: int) -> None:
    """Ever more messages until so many windows are closed, and then some that nobody has read yet."""
    while len({one.key for one in topic.records}) < least:
        await kit.put(next(parts, ()))
        await topic.read()
    await kit.put(next(parts, ()))


async def _every_message_is_somewhere(kit: Kit, log: list[Delivery], found: dict[str, list[str]]) -> None:
    formed = [name for members in found.values() for name in members]
    assert len(formed) == len(set(formed)), "no message is in two windows"
    pending = await kit.waiting()
    deleted = {one.key for one in log if one.event is None}
    recorded = {one.key for one in log if one.key.startswith("s.m")}
    assert recorded - deleted <= pending | set(formed), "none is lost"
    assert not pending & set(formed)
