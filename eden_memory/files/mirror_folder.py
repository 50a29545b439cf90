"""The folder of `eden mirror`: its files, each written in one step, and the encrypted notes beside them.

The key comes from the installation's secret, which is in MongoDB and not in the folder.

The notes hold ids, versions and hashes, no text, and are encrypted. A file names the memory that it was written
from, so an editor that saves an old state of it is understood, too.
"""

import ctypes
import fcntl
import hmac
import json
import os
import sys
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from typing import Any

from cryptography.fernet import Fernet, InvalidToken

from eden_memory.errors import Conflict, Invalid
from eden_memory.files.mirror_page import (
    BaseItem,
    FileConflict,
    Merged,
    MirrorPage,
    SentCommand,
    conflict_ids,
    conflict_line,
    digest_of,
    rendered,
    without_conflicts,
)
from eden_memory.logs import LibraryLogger

log = LibraryLogger()


AT_FDCWD, RENAME_EXCHANGE = -100, 2


def read_text(path: Path) -> str | None:
    """Return a file's text; None if it is not there. Conflict if it is not UTF-8."""
    try:
        return path.read_bytes().decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError:
        raise Conflict(f"{path} is not valid UTF-8", "Save it as UTF-8, and start again.") from None


def write_text(path: Path, text: str) -> None:
    """Write a file, or replace it."""
    made = path.with_name(f".{path.name}.new")
    descriptor = os.open(made, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())
    made.replace(path)


def replace_text(path: Path, former: str | None, text: str, aside: Path) -> bool:
    """Replace a file that holds `former` (None: does not exist); False, and no change, if it holds something else.

    The file and `aside` are exchanged: if somebody saved the file at the last moment, their text is put back.
    """
    write_text(aside, text)
    if not exchange(aside, path):
        expected = read_text(path) == former
        if expected:
            aside.replace(path)
    else:
        expected = read_text(aside) == former
        if not expected:
            exchange(aside, path)
    aside.unlink(missing_ok=True)
    return expected


def exchange(first: Path, second: Path) -> bool:
    """Exchange two files in one step; False if one is missing, or the system or its file system cannot."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    names = os.fsencode(first), os.fsencode(second)
    return rename is not None and rename(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE) == 0


MARKER = ".eden-mirror"

HEAD, MEMORY = "head", "memory"

ANSWERS = (
    "Nothing was changed. `eden mirror --accept` takes the files as they are; `eden mirror --restore` discards what "
    "they say and writes them again from memory."
)


class MirrorFolder:
    """A folder to which one process mirrors memory; `own`: the mirror's notes, without any text."""

    def __init__(self, path: Path, memory: str) -> None:
        """`memory` says whose memory it holds: it takes no other."""
        self.path, self.own, self._memory = path, path / MARKER, memory
        self._place: tuple[int, int] | None = None
        self._lock: int | None = None

    def create(self) -> None:
        """Make the folder a mirror of this memory if it is none yet; Invalid if it holds Markdown files."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.own.exists():
            return
        if any(self.path.glob("*.md")):
            raise Invalid(f"{self.path} holds Markdown files", "Give an empty folder.")
        self.own.mkdir(mode=0o700)
        write_text(self.own / ".gitignore", "*\n")
        write_text(self.own / MEMORY, self._memory)

    def open(self) -> None:
        """Take the folder for this process. Conflict if it is missing, or another process has it."""
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
        """Release the folder."""
        if self._lock is not None:
            os.close(self._lock)

    def demand_there(self) -> None:
        """Raise Conflict if the folder or its marker is missing, or another folder is in its place."""
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
        """Record the branch that is checked out."""
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


class SealedNotes:
    """Writes and reads notes with the key of one installation."""

    def __init__(self, secret: bytes) -> None:
        self._key = hmac.digest(secret, b"eden mirror", "sha256")
        self._cipher = Fernet(urlsafe_b64encode(self._key))

    def write(self, path: Path, noted: Any) -> None:
        """Write a note as JSON, encrypted."""
        write_text(path, self._cipher.encrypt(json.dumps(noted).encode()).decode())

    def read(self, path: Path) -> Any:
        """Return a note; None if there is none, or it is damaged or has another key: then it is removed."""
        try:
            return json.loads(self._cipher.decrypt(path.read_bytes()))
        except FileNotFoundError:
            return None
        except (InvalidToken, ValueError):
            log.warning("a note of the mirror cannot be read", file=f"{path.parent.name}/{path.name}")
            path.unlink()
            return None

    def name(self, text: str) -> str:
        """Return a short name for a text that nobody can guess the text from without the key."""
        return hmac.new(self._key, text.encode(), "sha256").hexdigest()[:16]


KEPT_BASES = 50

LONGEST_NAME = 100

CONFLICTS = ".conflicts"
"""The end of the names of conflict files, and of no others."""

TITLE = "# Not in memory\n\nThese changes were not taken. Delete the lines that are settled, or the file.\n\n"


def file_name(scope_key: str) -> str:
    """Return the name of a scope's file, which leaves out the mirror's agent: `user.s.ada`."""
    kind, *ids = scope_key.split(":")
    name = ".".join([kind, *(ids if kind == "session" else ids[1:])])
    short = f"{name[:LONGEST_NAME]}.{sha256(scope_key.encode()).hexdigest()[:8]}"
    return short if len(name) > LONGEST_NAME or name.lower().endswith(CONFLICTS) else name


def remove_others(folder: Path, own: Path, shown: Iterable[str]) -> None:
    """Remove the files and the notes of all scopes that a mirror has written but these."""
    kept = {file_name(scope_key) for scope_key in shown}
    for notes in own.iterdir():
        if notes.is_dir() and notes.name not in kept:
            for path in (folder / f"{notes.name}.md", folder / f"{notes.name}{CONFLICTS}.md"):
                path.unlink(missing_ok=True)
            rmtree(notes)


class ScopeFile:
    """One scope's file in the mirror's folder; `own`: the folder of the mirror's notes."""

    def __init__(self, folder: Path, own: Path, scope_key: str, notes: SealedNotes) -> None:
        self.scope_key, name, self._notes = scope_key, file_name(scope_key), notes
        self.path, self.conflicts = folder / f"{name}.md", folder / f"{name}{CONFLICTS}.md"
        self._own, self._aside = own / name, own / name / "aside.md"
        self._own.mkdir(mode=0o700, exist_ok=True)
        noted: dict[str, Any] = notes.read(self._own / "state") or {}
        self._newest: str | None = noted.get("newest")
        self._written: list[str] = noted.get("written", [])
        self._absent = False
        self.sent = {key: SentCommand(**sent) for key, sent in noted.get("sent", {}).items()}
        self._finish_replacing()

    def _finish_replacing(self) -> None:
        """Restore what somebody saved at the moment when an earlier process was killed."""
        left = read_text(self._aside)
        saved = left is not None and digest_of(left) not in self._written
        if saved and not exchange(self._aside, self.path):
            self._aside.replace(self.path)
        self._aside.unlink(missing_ok=True)

    def read(self) -> str | None:
        """Return the file's text; None if it is not there."""
        return read_text(self.path)

    def is_as_written(self, text: str | None) -> bool:
        """Return whether this is what the mirror wrote last; None: nothing yet, or the user has deleted it all."""
        if text is None:
            return self._newest is None or self._absent
        return self._written[-1:] == [digest_of(text)]

    def base(self, page: MirrorPage | None) -> Mapping[str, BaseItem] | None:
        """Return the memory that a page was written from, of a missing file the newest; None if it is unknown."""
        stamp = self._newest if page is None else page.base
        if stamp is None:
            return {}
        is_one = stamp.isalnum() and len(stamp) < LONGEST_NAME
        noted = self._notes.read(self._own / f"{stamp}.base") if is_one else None
        return None if noted is None else {name: BaseItem(*item) for name, item in noted.items()}

    def write(self, former: str | None, merged: Merged) -> bool:
        """Write the file in place of `former`; False if it holds something else by now.

        A file that the user has deleted is written again only when there is something to show.
        """
        self._absent = former is None and self._newest is not None and merged.is_empty
        if self._absent:
            return True
        stamp = f"m{self._notes.name(merged.told)}"
        text = rendered(MirrorPage(self.scope_key, stamp, merged.lines, pins=merged.pins))
        if text == former and self.is_as_written(text):
            return True
        items = {name: (item.version, item.digest) for name, item in sorted(merged.base.items())}
        self._notes.write(self._own / f"{stamp}.base", items)
        self._written = [*([] if former is None else [digest_of(former)]), digest_of(text)]
        self._note()
        if text != former and not replace_text(self.path, former, text, self._aside):
            return False
        self._newest = stamp
        self._note()
        self._drop_old_bases()
        return True

    def _drop_old_bases(self) -> None:
        noted = sorted(self._own.glob("*.base"), key=lambda path: path.stat().st_mtime_ns)
        for path in noted[:-KEPT_BASES]:
            if path.stem != self._newest:
                path.unlink()

    def note_sent(self, sent: Mapping[str, SentCommand]) -> None:
        """Record the commands whose outcome is not known yet."""
        if sent != self.sent:
            self.sent = dict(sent)
            self._note()

    def _note(self) -> None:
        sent = {key: asdict(command) for key, command in self.sent.items()}
        noted = {"newest": self._newest, "written": self._written, "sent": sent}
        self._notes.write(self._own / "state", noted)

    def add_conflicts(self, conflicts: Sequence[FileConflict]) -> bool:
        """Append conflicts to the file beside this one, each once; return whether there were new ones."""
        text = read_text(self.conflicts) or TITLE
        lines = [conflict_line(conflict.item, conflict.why, conflict.text) for conflict in conflicts]
        new = [line for line in dict.fromkeys(lines) if line not in text.split("\n")]
        if new:
            write_text(self.conflicts, "\n".join([text.removesuffix("\n"), *new, ""]))
        return bool(new)

    def conflicting(self) -> set[str]:
        """Return the ids of memory that the file of conflicts names."""
        return conflict_ids(read_text(self.conflicts) or "")

    def drop_conflicts(self, gone: Callable[[str], bool]) -> None:
        """Remove conflicts about memory that is forgotten."""
        text = read_text(self.conflicts)
        if text is not None and (left := without_conflicts(text, gone)) != text:
            write_text(self.conflicts, left)
