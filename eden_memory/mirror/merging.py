"""Three-way merge of a scope's file with its memory: against the memory that the file was written from. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from eden_memory.imports.mirror_page import BLOB, Kind, MirrorLine, MirrorPage, digest_of
from eden_memory.memory.fact_hash import fact_hash

CommandKind = Literal["add", "edit", "retire"]


@dataclass(frozen=True, slots=True)
class MirroredItem:
    """A blob, reflection or fact as memory holds it; its text as files hold it."""

    kind: Kind
    id: str
    version: int
    text: str
    pins: tuple[str, ...] = ()
    """Of a blob: sentences that its text must keep."""


@dataclass(frozen=True, slots=True)
class BaseItem:
    """An item as it was when a file was written; of its text only a hash."""

    version: int
    digest: str


@dataclass(frozen=True, slots=True)
class SentCommand:
    """A command that was sent and whose outcome is not seen yet; `version` 0: it adds the item."""

    version: int
    digest: str
    request: str
    """The id of its request: a repeat has it, too."""


@dataclass(frozen=True, slots=True)
class FileCommand:
    """A change that the user has made in a file."""

    action: CommandKind
    kind: Kind
    id: str
    """Of an addition: the one that its request gives it, "" as long as there is none."""
    version: int
    text: str = ""

    @property
    def key(self) -> str:
        """Its place among the commands sent: at most one for each version of an item."""
        return f"{self.id}@{self.version}" if self.action != "add" else f"{self.kind}:{digest_of(self.text)}"

    @property
    def refusal(self) -> str:
        """The change that is refused with it: a change to another text may be accepted."""
        return f"{self.action} {self.key} {digest_of(self.text)}"


@dataclass(frozen=True, slots=True)
class FileConflict:
    """A change in a file that memory does not take."""

    item: str
    why: str
    text: str


@dataclass(slots=True)
class Merged:
    """The outcome of a merge: commands to send, conflicts to show, and the file to write."""

    commands: list[FileCommand] = field(default_factory=list[FileCommand])
    conflicts: list[FileConflict] = field(default_factory=list[FileConflict])
    lines: list[MirrorLine] = field(default_factory=list[MirrorLine])
    base: dict[str, BaseItem] = field(default_factory=dict[str, BaseItem])
    pins: tuple[str, ...] = ()

    def show(self, item: MirroredItem) -> None:
        """Put an item into the file as memory has it."""
        self.lines.append(MirrorLine(item.kind, item.id, item.text))
        self.base[item.id] = BaseItem(item.version, digest_of(item.text))

    @property
    def is_empty(self) -> bool:
        """Whether the file says nothing."""
        return not any(line.text for line in self.lines)

    @property
    def told(self) -> str:
        """The base as a text: the same memory gives the same text."""
        return "\n".join(f"{name} {item.version} {item.digest}" for name, item in sorted(self.base.items()))


@dataclass(frozen=True, slots=True)
class PageMerge:
    """One merge; `page` None: the file is not there.

    `sent`: by the commands' keys; `refused`: why changes were refused.
    """

    base: Mapping[str, BaseItem]
    page: MirrorPage | None
    memory: Sequence[MirroredItem]
    sent: Mapping[str, SentCommand]
    refused: Mapping[str, str]

    def merged(self) -> Merged:
        """Return the outcome: a change on one side is taken; of changes on both, memory's, with a conflict."""
        merged, found = Merged(), {item.id: item for item in self.memory}
        mine, added = self._mine()
        for item in self.memory:
            merged.pins += item.pins
            base = self._base_of(item)
            if base is None or (self.page is None and item.kind == "blob"):
                merged.show(item)
            else:
                self._take(merged, item, base, mine.get(item.id))
        for name in self.base.keys() - found.keys():
            added += self._gone(merged, name, mine.get(name))
        self._add(merged, added)
        merged.conflicts += [
            FileConflict("", "this line is in no section", stray)
            for stray in (self.page.strays if self.page is not None else ())
        ]
        return merged

    def _mine(self) -> tuple[dict[str, MirrorLine], list[MirrorLine]]:
        """Return the file's lines by item, and the new ones; a line that has lost its id is found by its text."""
        mine, others = dict[str, MirrorLine](), list[MirrorLine]()
        for line in self.page.lines if self.page is not None else ():
            known = line.id is not None and line.id in self.base
            if known and line.id not in mine:
                mine[line.id or BLOB] = line
            else:
                others.append(line)
        missing = {item.digest: name for name, item in self.base.items() if name not in mine and name != BLOB}
        added = list[MirrorLine]()
        for line in others:
            name = missing.pop(digest_of(line.text), None)
            if name is None:
                added.append(line)
            else:
                mine[name] = line
        return mine, added

    def _base_of(self, item: MirroredItem) -> BaseItem | None:
        """Return what the file's item is compared with: the newest version if our command made it, else the base."""
        base, digest = self.base.get(item.id), digest_of(item.text)
        if base is not None and base.version < item.version:
            sent = self.sent.get(f"{item.id}@{base.version}")
            if sent is not None and sent.digest == digest:
                return BaseItem(item.version, digest)
        return base

    def _take(self, merged: Merged, item: MirroredItem, base: BaseItem, mine: MirrorLine | None) -> None:
        digest = digest_of(item.text)
        if mine is not None and digest_of(mine.text) in (base.digest, digest):
            return merged.show(item)
        text = "" if mine is None else mine.text
        command = FileCommand("retire" if mine is None else "edit", item.kind, item.id, item.version, text)
        why = self.refused.get(command.refusal) if digest == base.digest else "it has changed meanwhile"
        if why is not None:
            name = item.id or f"blob@{item.version}"
            merged.conflicts.append(FileConflict(name, why, text or "(the line was deleted)"))
            return merged.show(item)
        merged.commands.append(command)
        merged.base[item.id] = BaseItem(item.version, base.digest)
        if mine is not None:
            merged.lines.append(MirrorLine(item.kind, item.id, mine.text))
        return None

    def _gone(self, merged: Merged, name: str, mine: MirrorLine | None) -> list[MirrorLine]:
        """Take an item that memory no longer shows; the line is added anew where it came back after its deletion."""
        base = self.base[name]
        if mine is None or mine.kind == "blob":
            return []
        sent = self.sent.get(f"{name}@{base.version}")
        if sent is not None and sent.digest == "":
            return [MirrorLine(mine.kind, None, mine.text)]
        shown = any(fact_hash(item.text) == fact_hash(mine.text) for item in self.memory)
        if digest_of(mine.text) != base.digest and not shown:
            merged.conflicts.append(FileConflict(name, "it is no longer in memory", mine.text))
        return []

    def _add(self, merged: Merged, added: Sequence[MirrorLine]) -> None:
        """Take the lines that are new, each once; those that the file has already are left out."""
        known = {(line.kind, fact_hash(line.text)) for line in merged.lines}
        for line in added:
            place = line.kind, fact_hash(line.text)
            if line.kind == "blob" or place in known:
                continue
            known.add(place)
            command = FileCommand("add", line.kind, "", 0, line.text)
            if command.refusal in self.refused:
                merged.conflicts.append(FileConflict("", self.refused[command.refusal], line.text))
            else:
                merged.commands.append(command)
                merged.lines.append(MirrorLine(line.kind, None, line.text))
