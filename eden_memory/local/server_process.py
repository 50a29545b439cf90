"""Start, recognise, signal and end a detached server process.

`python -m eden_memory.local.server_process PID PROGRAM MARKER` is the warden of a server: it ends the server when the
process that started it is gone, even by `kill -9`. Its standard input is the read end of a pipe whose write end only
the starting process holds, so the system closes the pipe with that process.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

import psutil

POLL_SECONDS = 0.05
WARDEN_STOP_SECONDS = 10.0
ERROR = re.compile(r"\b(ERROR|FATAL|Error|Exception|Caused by)\b|[a-z](Error|Exception)\b|\"s\":\"[EF]\"")


class _Detached(subprocess.Popen[bytes]):
    """A child that may outlive this program without a warning."""

    def __init__(
        self, arguments: Sequence[str], folder: Path, output: IO[bytes] | int, given: int = subprocess.DEVNULL
    ) -> None:
        super().__init__(
            arguments,
            cwd=folder,
            stdin=given,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.arguments = tuple(arguments)

    def __del__(self) -> None: ...


_pipes: dict[int, int] = {}
"""The pipe to the warden of each server that ends with this process, by the server's pid."""
_wardens: list[_Detached] = []
_children: dict[int, _Detached] = {}
"""Servers that this process started; it reaps them when they end, so that none stays a zombie."""


def spawn(command: Sequence[str], log: Path, folder: Path) -> int:
    """Start a command in its own session, append its output to `log`, and return its pid."""
    with log.open("ab") as output:
        child = _Detached(command, folder, output)
    _children[child.pid] = child
    return child.pid


def end_with_this_process(pid: int, program: str, marker: str) -> None:
    """Start a warden that ends the server when this process is gone; it has a session of its own."""
    read, write = os.pipe()
    command = (sys.executable, "-m", "eden_memory.local.server_process", str(pid), program, marker)
    try:
        _wardens.append(_Detached(command, Path.cwd(), subprocess.DEVNULL, read))
    except BaseException:
        os.close(write)
        raise
    finally:
        os.close(read)
    _pipes[pid] = write


def _dismiss_warden(pid: int) -> None:
    if (pipe := _pipes.pop(pid, None)) is not None:
        os.close(pipe)
    _wardens[:] = [warden for warden in _wardens if warden.poll() is None]


def is_server(pid: int, program: str, marker: str) -> bool:
    """Return whether the pid is a running `program` with `marker` among its arguments, not a recycled pid."""
    command = _command_of(pid)
    return bool(command) and Path(command[0]).name.startswith(program) and marker in command[1:]


def find(program: str, marker: str) -> int | None:
    """Return the pid of a running server by its command line, for when its state file is lost."""
    for process in psutil.process_iter():
        if is_server(process.pid, program, marker):
            return process.pid
    return None


def end(pid: int, is_alive: Callable[[], bool], seconds: float) -> None:
    """End a process with SIGTERM, after the deadline with SIGKILL; return when it is gone."""
    send(pid, signal.SIGTERM)
    send(pid, signal.SIGCONT)
    if not wait_until(lambda: not is_alive(), seconds):
        kill(pid, is_alive)


def kill(pid: int, is_alive: Callable[[], bool]) -> None:
    """Send SIGKILL, and wait until the process is gone."""
    send(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(), 10.0)


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal; do nothing if the process is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Poll a condition until it is true or the seconds are over, and return which."""
    return any(condition() for _ in ticks(seconds))


def ticks(seconds: float) -> Iterator[float]:
    """Yield the seconds left, with a short pause between, until none are; at least once."""
    until = time.monotonic() + seconds
    while True:
        yield until - time.monotonic()
        if time.monotonic() >= until:
            return
        time.sleep(POLL_SECONDS)


def last_words(log: Path, since: int = 0) -> str:
    """Return the error lines of a log file from a byte offset on; empty when there is no file."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(since, log.stat().st_size - 256_000))
        return telling(file.read().decode(errors="replace"))


def telling(output: str, count: int = 8, width: int = 400) -> str:
    """Return the last lines that name errors; if none does, the last lines."""
    lines = output.splitlines()
    errors = [line for line in lines if ERROR.search(line) and not line.startswith("\tat ")]
    return "\n".join(line[:width] for line in (errors or lines)[-count:])


def _command_of(pid: int) -> list[str]:
    """Return a process's command line, empty when it is gone; reap a child of ours that has ended."""
    child = _children.get(pid)
    if child is not None and child.poll() is None:
        # Not from the system: for a moment after its start a process has no command line there.
        return list(child.arguments)
    _children.pop(pid, None)
    _dismiss_warden(pid)
    try:
        return psutil.Process(pid).cmdline()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return []


def watch_over(pid: int, program: str, marker: str) -> None:
    """Wait until standard input is closed, then end the server if the pid is still that server's."""
    sys.stdin.buffer.read()
    if is_server(pid, program, marker):
        end(pid, lambda: is_server(pid, program, marker), WARDEN_STOP_SECONDS)


if __name__ == "__main__":
    watch_over(int(sys.argv[1]), sys.argv[2], sys.argv[3])
