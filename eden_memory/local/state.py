"""Keep a local server's ports, pid and version between two commands."""

import fcntl
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from eden_memory.errors import EdenError


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
