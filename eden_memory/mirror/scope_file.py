"""The file of one scope, and what is noted beside it: from which memory it was written, and the commands sent.

The notes hold ids, versions and hashes, no text, and are encrypted. A file names the memory that it was written
from, so an editor that saves an old state of it is understood, too.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from typing import Any

from eden_memory.imports.mirror_page import (
    MirrorPage,
    conflict_ids,
    conflict_line,
    digest_of,
    rendered,
    without_conflicts,
)
from eden_memory.mirror.atomic_files import exchange, read_text, replace_text, write_text
from eden_memory.mirror.merging import BaseItem, FileConflict, Merged, SentCommand
from eden_memory.mirror.sealed_notes import SealedNotes

KEPT_BASES = 50
LONGEST_NAME = 100
CONFLICTS = ".conflicts"
"""Ends the names of files of conflicts, and of no other."""
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
        """Put back what somebody saved in the moment in which an earlier process was killed."""
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
        """Note the commands whose outcome is not seen yet."""
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
        """Leave out conflicts about memory that is forgotten."""
        text = read_text(self.conflicts)
        if text is not None and (left := without_conflicts(text, gone)) != text:
            write_text(self.conflicts, left)
