"""Facts about this process: its identity, whether it is ours (only ours is patched), whether a person waits."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b
from pathlib import Path

_ours: list[bool] = []
_longest: ContextVar[float] = ContextVar("longest", default=float("inf"))
PROC = Path("/proc")
STARTED = 19
"""Of the fields of /proc/PID/stat behind the process's name: when it started."""


def claim_process() -> None:
    """Say that this process runs nothing but Eden Memory, before it connects to anything."""
    _ours.append(True)


def process_is_ours() -> bool:
    """Whether somebody has said so."""
    return bool(_ours)


@contextmanager
def answering_within(seconds: float) -> Generator[None]:
    """Give a server that does not answer no more than so many seconds in the block."""
    before = _longest.set(seconds)
    try:
        yield
    finally:
        _longest.reset(before)


def patience(seconds: float) -> float:
    """Return how long to wait for a server's first answer: the seconds, or fewer where a person waits."""
    return min(seconds, _longest.get())


def naming_process(name: str) -> str:
    """`eden-memory` → `eden-memory.<kernel>.<pid>.<start>`; unchanged where the system does not tell."""
    kernel, fields = _kernel(), _fields(os.getpid())
    return name if kernel is None or fields is None else f"{name}.{kernel}.{os.getpid()}.{fields[STARTED]}"


def proved_dead(name: str) -> bool:
    """Whether the process that :func:`naming_process` named has ended; False wherever that cannot be proved.

    It can only of a process of this boot and this pid namespace: a pid that is gone, or that started another time.
    """
    parts = name.split(".")
    if len(parts) != 4 or parts[1] != _kernel() or not parts[2].isdecimal():
        return False
    try:
        os.kill(int(parts[2]), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass  # it is there, and belongs to somebody else
    fields = _fields(int(parts[2]))
    return fields is not None and fields[STARTED] != parts[3]


def _kernel() -> str | None:
    """This boot, with the namespaces of pids and of start times; None where /proc is not this process's own."""
    try:
        if os.readlink(PROC / "self") != str(os.getpid()):
            return None
        boot = (PROC / "sys/kernel/random/boot_id").read_text()
        namespaces = [os.readlink(PROC / "self/ns" / kind) for kind in ("pid", "time")]
    except OSError:
        return None
    return blake2b(f"{boot} {namespaces}".encode(), digest_size=6).hexdigest()


def _fields(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat behind the process's name; None where there are none."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
