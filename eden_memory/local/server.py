"""Start, stop, kill, freeze and restart a local server in a folder, each with a deadline."""

import fcntl
import os
import random
import shutil
import signal
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from eden_memory.errors import EdenError, describe
from eden_memory.local import server_process


class ServerState(BaseModel):
    """One server's `server.json`."""

    model_config = ConfigDict(frozen=True)

    ports: dict[str, int] = Field(default_factory=dict[str, int])
    pid: int | None = None
    started_at: float | None = None
    version: str = ""


def load(path: Path) -> ServerState:
    """Return the stored state; an absent or damaged file counts as empty."""
    try:
        return ServerState.model_validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValidationError):
        return ServerState()


def save(path: Path, state: ServerState) -> None:
    """Write the state atomically: a reader sees the old file or the new one."""
    partial = path.with_suffix(".partial")
    partial.write_text(state.model_dump_json(indent=2))
    partial.replace(path)


@contextmanager
def exclusively(path: Path, seconds: float, doing: str) -> Generator[None]:
    """Hold a lock file for the block; the system releases it when its holder dies.

    Raises EdenError when another program holds it for longer than `seconds`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        _lock(file.fileno(), path, seconds, doing)
        yield


def _lock(descriptor: int, path: Path, seconds: float, doing: str) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise EdenError(
                    f"another program has been {doing} for {seconds:.0f} s (it holds {path})",
                    "Wait for it to end, or end it, and try again.",
                ) from None
            time.sleep(0.05)
        else:
            return


START_SECONDS = 60.0

STOP_SECONDS = 30.0

PORT_SECONDS = 2.0

LOCK_SECONDS = 180.0

NEEDED_BYTES = 300_000_000

OTHER_FOLDER = "EDEN_LOCAL_FOLDER names another folder."

LOG_BYTES = 10_000_000


@dataclass(frozen=True, slots=True)
class Started:
    """The result of a start: whether the server ran already, and what had to be repaired."""

    already: bool
    notes: Sequence[str] = ()


@dataclass(slots=True)
class _Attempt:
    """A running start."""

    ports: dict[str, int]
    notes: list[str] = field(default_factory=list[str])


class ServerInFolder(ABC):
    """One server in one folder: data, log, configuration and `server.json` stand there.

    Calls block; from asyncio use `asyncio.to_thread`. What goes wrong is an EdenError that ends in what the
    log says.
    """

    name: ClassVar[str]
    program: ClassVar[str]
    port_names: ClassVar[Sequence[str]]

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.log = self.folder / "server.log"
        self._state_file = self.folder / "server.json"
        self._log_start = 0
        self._stays = False

    @property
    @abstractmethod
    def marker(self) -> str:
        """The argument that tells this folder's server from any other process."""

    @property
    @abstractmethod
    def endpoint(self) -> str:
        """Where clients connect to."""

    @abstractmethod
    def _prepare(self, chosen: Mapping[str, int], notes: list[str]) -> Sequence[str]:
        """Write configuration and data folder for these ports; return the command that starts the server."""

    @abstractmethod
    def _probe(self) -> str | None:
        """Return the server's version once it serves, None until then."""

    @property
    def state(self) -> ServerState:
        """The content of `server.json`."""
        return load(self._state_file)

    @property
    def port(self) -> int:
        """The port for clients; an EdenError when it was never started."""
        chosen = self.state.ports
        if not chosen:
            raise EdenError(f"{self.name} has never been started in {self.folder}", "Run `eden up`.")
        return chosen[self.port_names[0]]

    @property
    def pid(self) -> int | None:
        """Return the pid of the running server, even if the state file is wrong; None if it does not run."""
        remembered = self.state.pid
        if remembered is not None and server_process.is_server(remembered, self.program, self.marker):
            return remembered
        return server_process.find(self.program, self.marker) if self.folder.is_dir() else None

    @property
    def running(self) -> bool:
        """Return whether the server's process is alive (it may be frozen or busy)."""
        return self.pid is not None

    def start(self, seconds: float = START_SECONDS, *, stays: bool = False) -> Started:
        """Start the server unless it runs, and wait until it serves.

        It ends when this process is gone, also after `kill -9`, unless it `stays`.
        """
        self._stays = stays
        self._make_folder()
        with self._exclusively("starting"):
            pid = self.pid
            try:
                return self._keep(pid, seconds) if pid is not None else self._boot(seconds)
            except OSError as error:
                raise EdenError(
                    f"{self.name} cannot be started in {error.filename or self.folder}: {describe(error)}",
                    OTHER_FOLDER,
                ) from error

    def stop(self, seconds: float = STOP_SECONDS) -> bool:
        """Stop the server cleanly, or kill it after the deadline; return whether it ran."""
        if not self.folder.is_dir():
            return False
        with self._exclusively("stopping"):
            pid = self.pid
            if pid is not None:
                server_process.end(pid, lambda: self._is_mine(pid), seconds)
                self._await_ports()
            self._remember(pid=None, started_at=None)
            return pid is not None

    def kill(self) -> None:
        """Send SIGKILL, like a crash: nothing is flushed and the state file becomes stale."""
        pid = self._running_pid()
        server_process.kill(pid, lambda: self._is_mine(pid))
        self._await_ports()

    def restart(self, seconds: float = START_SECONDS) -> Started:
        """Stop cleanly, then start with the same ports and data."""
        self.stop()
        return self.start(seconds, stays=self._stays)

    def freeze(self) -> None:
        """Send SIGSTOP: the process stays alive and does nothing."""
        server_process.send(self._running_pid(), signal.SIGSTOP)

    def thaw(self) -> None:
        """Send SIGCONT: a frozen process continues."""
        server_process.send(self._running_pid(), signal.SIGCONT)

    def _keep(self, pid: int, seconds: float) -> Started:
        notes = [] if self.state.pid == pid else [f"{self.name} ran as pid {pid}, which was not remembered"]
        if not self.state.ports:
            raise EdenError(
                f"{self.name} runs as pid {pid} but {self._state_file} is lost, so its ports are unknown",
                "Run `eden down`, then `eden up`.",
            )
        self._remember(pid=pid)
        self._wait_until_ready(pid, seconds)
        return Started(already=True, notes=notes)

    def _boot(self, seconds: float) -> Started:
        attempt = self._choose_ports()
        self._note_stale_pid(attempt)
        for retries in (2, 1, 0):
            try:
                return self._launch(attempt, seconds)
            except EdenError:
                self._await_ports()
                if retries == 0 or all(is_free(port) for port in attempt.ports.values()):
                    raise
                attempt = self._choose_ports(attempt.notes)
        raise AssertionError("unreachable")

    def _launch(self, attempt: _Attempt, seconds: float) -> Started:
        command = self._prepare(attempt.ports, attempt.notes)
        self._log_start = self._rotate_log()
        pid = server_process.spawn(command, self.log, self.folder)
        if not self._stays:
            server_process.end_with_this_process(pid, self.program, self.marker)
        save(self._state_file, ServerState(ports=attempt.ports, pid=pid, started_at=time.time()))
        try:
            self._wait_until_ready(pid, seconds)
        except BaseException:
            server_process.kill(pid, lambda: self._is_mine(pid))
            raise
        return Started(already=False, notes=tuple(attempt.notes))

    def _wait_until_ready(self, pid: int, seconds: float) -> None:
        for _ in server_process.ticks(seconds):
            if not self._is_mine(pid):
                raise self._failure("ended while it was starting")
            version = self._probe()
            if version is not None:
                self._remember(version=version)
                return
        raise self._failure(f"(pid {pid}) does not answer after {seconds:.0f} s")

    def _failure(self, what: str) -> EdenError:
        lines = server_process.last_words(self.log, self._log_start)
        return EdenError(
            f"{self.name} {what}; {self.log} says:\n{lines}",
            f"Run `eden down`, put right what the log says, then `eden up`. {self.folder} holds its data.",
        )

    def _choose_ports(self, notes: list[str] | None = None) -> _Attempt:
        attempt = _Attempt({}, notes if notes is not None else [])
        remembered = self.state.ports
        for name in self.port_names:
            attempt.ports[name] = self._choose_port(name, remembered.get(name), attempt.notes)
        return attempt

    def _choose_port(self, name: str, remembered: int | None, notes: list[str]) -> int:
        if remembered is not None and server_process.wait_until(lambda: is_free(remembered), PORT_SECONDS):
            return remembered
        port = choose()
        if remembered is not None:
            notes.append(
                f"port {remembered} ({name}) is taken by another program: {self.name} moves to {port}"
            )
        return port

    def _await_ports(self) -> None:
        """Wait until the ports are free: the system closes sockets a moment after the process ends."""
        server_process.wait_until(lambda: all(map(is_free, self.state.ports.values())), PORT_SECONDS)

    def _note_stale_pid(self, attempt: _Attempt) -> None:
        stale = self.state.pid
        if stale is not None:
            attempt.notes.append(
                f"{self.name} (pid {stale}) was not stopped cleanly; started again on its data"
            )

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(self.folder).free
        except OSError as error:
            raise EdenError(
                f"cannot use {self.folder}: {error.strerror}", "EDEN_LOCAL_FOLDER names another."
            ) from error
        if not os.access(self.folder, os.W_OK):
            raise EdenError(f"cannot write to {self.folder}", "EDEN_LOCAL_FOLDER names another folder.")
        if free < NEEDED_BYTES and not self.running:
            raise EdenError(
                f"only {free // 1_000_000} MB are free on the disk of {self.folder}; "
                f"{self.name} needs {NEEDED_BYTES // 1_000_000} MB to start",
                "Free some space, or name a folder on another disk with EDEN_LOCAL_FOLDER.",
            )

    def _rotate_log(self) -> int:
        """Return where this start's log lines begin; move a large earlier log away."""
        size = self.log.stat().st_size if self.log.exists() else 0
        if size <= LOG_BYTES:
            return size
        self.log.replace(self.log.with_suffix(".log.1"))
        return 0

    def _remember(self, **changed: object) -> None:
        state = self.state
        if state.model_copy(update=changed) != state:
            save(self._state_file, state.model_copy(update=changed))

    def _is_mine(self, pid: int) -> bool:
        return server_process.is_server(pid, self.program, self.marker)

    def _running_pid(self) -> int:
        pid = self.pid
        if pid is None:
            raise EdenError(f"{self.name} does not run in {self.folder}")
        return pid

    @contextmanager
    def _exclusively(self, doing: str) -> Generator[None]:
        with exclusively(self.folder / ".lock", LOCK_SECONDS, f"{doing} {self.name}"):
            yield


HOST = "127.0.0.1"

FIRST, LAST = 20_000, 32_000

"""Below Linux's and macOS's ephemeral ranges: no client takes the port of a server that is down briefly."""


def is_free(port: int) -> bool:
    """Return whether a server could listen on this loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def accepts(port: int) -> bool:
    """Return whether something accepts connections on this loopback port."""
    try:
        with socket.create_connection((HOST, port), timeout=1.0):
            return True
    except OSError:
        return False


def choose() -> int:
    """Return a random free port, so that programs that choose at the same time rarely collide."""
    for _ in range(1_000):
        port = random.randint(FIRST, LAST)  # noqa: S311
        if is_free(port):
            return port
    raise OSError(f"no free port between {FIRST} and {LAST} on {HOST}")
