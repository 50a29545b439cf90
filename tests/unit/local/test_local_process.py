"""Processes and state files: what is taken for a server of ours, what not, and what a crash leaves behind."""

import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path

import psutil
import pytest

from eden_memory.errors import EdenError
from eden_memory.local import server_process
from eden_memory.local.server import ServerState, exclusively, load, save

PROGRAM = "python"
SOON = 60.0
WAITS = "import time; time.sleep(60)"
IGNORES_SIGTERM = (
    "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
)


@pytest.fixture
def marker(tmp_path: Path) -> str:
    return str(tmp_path / "server.conf")


@pytest.fixture
def pid(tmp_path: Path, marker: str) -> Generator[int]:
    spawned = server_process.spawn([sys.executable, "-c", WAITS, marker], tmp_path / "log", tmp_path)
    yield spawned
    server_process.kill(spawned, lambda: server_process.is_server(spawned, PROGRAM, marker))


def test_a_server_is_known_by_its_command_line(pid: int, marker: str) -> None:
    assert server_process.is_server(pid, PROGRAM, marker)
    assert server_process.find(PROGRAM, marker) == pid


def test_a_recycled_pid_is_not_taken_for_the_server(pid: int, marker: str) -> None:
    assert not server_process.is_server(os.getpid(), PROGRAM, marker)
    assert not server_process.is_server(pid, PROGRAM, marker + ".other")
    assert not server_process.is_server(pid, "mongod", marker)


def test_a_server_outlives_a_hangup_of_the_terminal_that_started_it(pid: int) -> None:
    assert os.getsid(pid) == pid != os.getsid(0)


def test_a_killed_server_leaves_no_zombie(pid: int, marker: str) -> None:
    server_process.kill(pid, lambda: server_process.is_server(pid, PROGRAM, marker))
    assert not psutil.pid_exists(pid)


def test_a_server_that_ignores_sigterm_is_killed_at_the_deadline(tmp_path: Path, marker: str) -> None:
    log = tmp_path / "stubborn"
    stubborn = server_process.spawn([sys.executable, "-c", IGNORES_SIGTERM, marker], log, tmp_path)
    assert server_process.wait_until(lambda: server_process.last_words(log) == "up", SOON)
    server_process.end(stubborn, lambda: server_process.is_server(stubborn, PROGRAM, marker), 0.3)
    assert not server_process.is_server(stubborn, PROGRAM, marker)


def test_a_frozen_server_ends_when_asked_to(pid: int, marker: str) -> None:
    server_process.send(pid, signal.SIGSTOP)
    server_process.end(pid, lambda: server_process.is_server(pid, PROGRAM, marker), SOON)
    assert not server_process.is_server(pid, PROGRAM, marker)


def test_a_signal_to_a_process_that_is_gone_is_no_error(pid: int, marker: str) -> None:
    server_process.kill(pid, lambda: server_process.is_server(pid, PROGRAM, marker))
    server_process.send(pid, signal.SIGTERM)


def test_the_end_of_a_long_log_is_shown_when_it_names_no_error(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(50_000)))
    assert server_process.last_words(log).splitlines()[-2:] == ["line 49998", "line 49999"]


def test_errors_of_this_start_are_shown_rather_than_the_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("ERROR of an earlier start\n")
    since = log.stat().st_size
    words = [
        '{"s":"F", "msg":"no space"}',
        "java.lang.IllegalStateException: broken",
        "\tat some.Frame(Error.java)",
    ]
    with log.open("a") as file:
        file.write("\n".join([words[0].replace(", ", ","), *words[1:], *["shutting down"] * 20]))
    assert server_process.last_words(log, since).splitlines() == ['{"s":"F","msg":"no space"}', words[1]]


def test_state_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    state = ServerState(ports={"kafka": 20_001}, pid=7, started_at=1.5, version="4.3.1")
    save(tmp_path / "server.json", state)
    assert load(tmp_path / "server.json") == state


@pytest.mark.parametrize("damaged", ["", "{", '{"pid": "x"}'])
def test_a_damaged_state_file_counts_as_nothing_remembered(tmp_path: Path, damaged: str) -> None:
    (tmp_path / "server.json").write_text(damaged)
    assert load(tmp_path / "server.json") == ServerState()


def test_a_held_lock_ends_in_a_message_not_in_a_hang(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    with (
        exclusively(lock, 1.0, "starting Kafka"),
        pytest.raises(EdenError, match="has been starting Kafka"),
        exclusively(lock, 0.1, "starting Kafka"),
    ):
        pass


def test_the_lock_of_a_killed_program_is_free(tmp_path: Path, marker: str) -> None:
    lock = tmp_path / ".lock"
    take = f"import fcntl; f = open({str(lock)!r}, 'ab'); fcntl.flock(f, 2); print('held', flush=True)"
    holder = server_process.spawn(
        [sys.executable, "-c", f"{take}; {WAITS}", marker], tmp_path / "log", tmp_path
    )
    assert server_process.wait_until(lambda: server_process.last_words(tmp_path / "log") == "held", SOON)
    server_process.kill(holder, lambda: server_process.is_server(holder, PROGRAM, marker))
    with exclusively(lock, 1.0, "starting"):
        pass
