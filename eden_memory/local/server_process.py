"""A detached server process: started, known again by its command line, signalled, ended."""

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
ERROR = re.compile(r"\b(ERROR|FATAL|Error|Exception|Caused by)\b|[a-z](Error|Exception)\b|\"s\":\"[EF]\"")


class _Detached(subprocess.Popen[bytes]):
    """A child that may outlive this program: no warning when it does."""

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
"""By the pid of a server that is to end with this process: the pipe that its warden waits at."""
_wardens: list[_Detached] = []
_children: dict[int, _Detached] = {}
"""Servers that this very process started: reaped when they end, so none is left as a zombie."""


def spawn(command: Sequence[str], log: Path, folder: Path) -> int:
    """Start a command in its own session with its output appended to `log`; its pid."""
    with log.open("ab") as output:
        child = _Detached(command, folder, output)
    _children[child.pid] = child
    return child.pid


def end_with_this_process(pid: int, program: str, marker: str) -> None:
    """Have a server ended once this process is gone; a signal to its process group does not reach the warden."""
    read, write = os.pipe()
    command = (sys.executable, "-m", "eden_memory.local.warden", str(pid), program, marker)
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
    """Whether this pid is a live `program` that has `marker` among its arguments: a recycled pid is not."""
    command = _command_of(pid)
    return bool(command) and Path(command[0]).name.startswith(program) and marker in command[1:]


def find(program: str, marker: str) -> int | None:
    """The pid of a running server by its command line, for when its state file is lost."""
    for process in psutil.process_iter():
        if is_server(process.pid, program, marker):
            return process.pid
    return None


def end(pid: int, is_alive: Callable[[], bool], seconds: float) -> None:
    """Ask a process to end (SIGTERM) and, past the deadline, kill it; returns when it is gone."""
    send(pid, signal.SIGTERM)
    send(pid, signal.SIGCONT)
    if not wait_until(lambda: not is_alive(), seconds):
        kill(pid, is_alive)


def kill(pid: int, is_alive: Callable[[], bool]) -> None:
    """SIGKILL, and wait until the process is gone."""
    send(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(), 10.0)


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal; a process that is already gone is no error."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Poll a condition until it holds (True) or the seconds are over (False)."""
    return any(condition() for _ in ticks(seconds))


def ticks(seconds: float) -> Iterator[float]:
    """The seconds left, again and again with a short pause, until none are; at least once."""
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
    """The last lines that name errors; the last of all where none does."""
    lines = output.splitlines()
    errors = [line for line in lines if ERROR.search(line) and not line.startswith("\tat ")]
    return "\n".join(line[:width] for line in (errors or lines)[-count:])


def _command_of(pid: int) -> list[str]:
    """A live process's command line; empty when it is gone. Reaps a child of ours that has ended."""
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
