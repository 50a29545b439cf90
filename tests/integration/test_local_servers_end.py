"""Servers that a process starts for itself end with it, however it ends; those of `eden up` stay."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psutil
import pytest

from eden_memory.local.local_kafka import LocalKafka
from eden_memory.local.mongo import LocalMongo
from tests.servers import wait_until

pytestmark = pytest.mark.servers
STARTS_BOTH = """
import sys, time
from pathlib import Path
from eden_memory.local.local_kafka import LocalKafka
from eden_memory.local.mongo import LocalMongo
folder, jars, stays = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "stays"
servers = [LocalMongo(folder / "mongodb"), LocalKafka(folder / "kafka", jars_folder=jars)]
for server in servers:
    server.start(stays=stays)
print(*(server.pid for server in servers), flush=True)
time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path, jars_folder: Path) -> Generator[Path]:
    yield tmp_path
    LocalMongo(tmp_path / "mongodb").stop()
    LocalKafka(tmp_path / "kafka", jars_folder=jars_folder).stop()


def started(folder: Path, jars: Path, how: str) -> tuple["subprocess.Popen[bytes]", list[int]]:
    """A process that has started both servers, in a process group of its own, and their pids."""
    command = [sys.executable, "-c", STARTS_BOTH, str(folder), str(jars), how]
    starter = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    assert starter.stdout is not None
    pids = [int(word) for word in starter.stdout.readline().split()]
    starter.stdout.close()
    assert len(pids) == 2
    return starter, pids


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGKILL, id="kill -9"),
        pytest.param(signal.SIGTERM, id="SIGTERM", marks=pytest.mark.slow),
    ],
)
def test_servers_end_with_the_process_group_that_started_them(
    folder: Path, jars_folder: Path, number: signal.Signals
) -> None:
    starter, pids = started(folder, jars_folder, "ends")
    assert all(map(psutil.pid_exists, pids))
    os.killpg(starter.pid, number)
    starter.wait()
    wait_until(lambda: not any(map(psutil.pid_exists, pids)), "both servers have ended")


def test_servers_that_stay_outlive_the_process_that_started_them(folder: Path, jars_folder: Path) -> None:
    starter, pids = started(folder, jars_folder, "stays")
    os.killpg(starter.pid, signal.SIGKILL)
    starter.wait()
    mongo, kafka = LocalMongo(folder / "mongodb"), LocalKafka(folder / "kafka", jars_folder=jars_folder)
    assert [mongo.pid, kafka.pid] == pids
    assert mongo.start().already
    assert kafka.start().already


def test_a_warden_goes_when_its_server_is_stopped(folder: Path) -> None:
    server = LocalMongo(folder / "mongodb")
    server.start()
    wait_until(lambda: _wardens(server) != [], "the warden runs")
    server.stop()
    wait_until(lambda: _wardens(server) == [], "the warden has gone")


def _wardens(server: LocalMongo) -> list[int]:
    found: list[Any] = list(psutil.process_iter(["pid", "cmdline"]))
    told = ["eden_memory.local.server_process", server.program, server.marker]
    return [one.info["pid"] for one in found if set(told) <= set(one.info["cmdline"] or ())]
