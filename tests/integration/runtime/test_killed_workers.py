"""Workers killed in the middle of their handlers: nothing lost, one outcome each, order kept."""

import asyncio
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.integration.runtime.harness import Bench, in_order, questions, until
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
    repeated = [name for name, count in Counter(calls.read_text().split()).items() if count > 1]
    assert len(repeated) <= 2 * 10, "only what was in flight at a kill: one of each session"


def _lines(path: Path) -> int:
    return len(path.read_text().split()) if path.exists() else 0
