"""The folder of `eden mirror`: it must be the one that was opened, with its marker, and on the same git branch."""

import fcntl
import os
from pathlib import Path

from eden_memory.errors import Conflict, Invalid
from eden_memory.mirror.atomic_files import read_text, write_text

MARKER = ".eden-mirror"
HEAD, MEMORY = "head", "memory"
ANSWERS = (
    "Nothing was changed. `eden mirror --accept` takes the files as they are; `eden mirror --restore` discards what "
    "they say and writes them again from memory."
)


class MirrorFolder:
    """A folder that one process mirrors memory to; `own`: what the mirror notes there, without any text."""

    def __init__(self, path: Path, memory: str) -> None:
        """`memory` says whose memory it holds: it takes no other."""
        self.path, self.own, self._memory = path, path / MARKER, memory
        self._place: tuple[int, int] | None = None
        self._lock: int | None = None

    def create(self) -> None:
        """Make the folder a mirror of this memory, unless it is one; Invalid if it holds Markdown files."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.own.exists():
            return
        if any(self.path.glob("*.md")):
            raise Invalid(f"{self.path} holds Markdown files", "Give an empty folder.")
        self.own.mkdir(mode=0o700)
        write_text(self.own / ".gitignore", "*\n")
        write_text(self.own / MEMORY, self._memory)

    def open(self) -> None:
        """Take the folder for this process. Conflict if it is not there, or another process has it."""
        self.demand_there()
        if read_text(self.own / MEMORY) != self._memory:
            raise Conflict(
                f"{self.path} mirrors other memory",
                f"Give another folder: it has {read_text(self.own / MEMORY)}.",
            )
        self.path.chmod(0o700)
        self._lock = os.open(self.own / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Conflict(f"another process mirrors memory to {self.path}", "Stop it first.") from None
        self._place = _place_of(self.path)
        for unfinished in (*self.path.glob(".*.md.new"), *self.own.rglob(".*.new")):
            unfinished.unlink()
        if read_text(self.own / HEAD) is None:
            self.note_branch()

    def close(self) -> None:
        """Let another process have the folder."""
        if self._lock is not None:
            os.close(self._lock)

    def demand_there(self) -> None:
        """Raise Conflict if the folder or its marker is missing, or another folder stands in its place."""
        place = _place_of(self.path)
        if place is None or not (self.own / MEMORY).exists():
            raise Conflict(
                f"{self.path} has no marker ({MARKER}): it is no mirror, or its disk is not mounted",
                "Nothing was changed. `eden mirror --new` makes an empty folder a mirror.",
            )
        if self._place not in (None, place):
            raise Conflict(f"{self.path} is another folder than before", "Nothing was changed. Start again.")

    def is_on_another_branch(self) -> bool:
        """Return whether another git branch is checked out than before."""
        return self._branch() != read_text(self.own / HEAD)

    def note_branch(self) -> None:
        """Note the branch that is checked out."""
        if self.is_on_another_branch():
            write_text(self.own / HEAD, self._branch())

    def git_is_busy(self) -> bool:
        """Return whether git is changing the working tree."""
        git = self._git()
        return git is not None and (git / "index.lock").exists()

    def _branch(self) -> str:
        git = self._git()
        return (read_text(git / "HEAD") or "") if git is not None else ""

    def _git(self) -> Path | None:
        """Return the folder of the git working tree that the mirror stands in."""
        path = self.path.resolve()
        found = next((place / ".git" for place in (path, *path.parents) if (place / ".git").exists()), None)
        if found is None or found.is_dir():
            return found
        return found.parent / (read_text(found) or "").removeprefix("gitdir:").strip()


def _place_of(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
