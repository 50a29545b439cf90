"""The Markdown file of one scope, and its three-way merge with memory. Pure.

Text of memory cannot change the file's structure: what Markdown, HTML or the ids' comments would read as markup is
escaped as in CommonMark, and control characters are written as numeric references.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal

import yaml

from eden_memory.memory.memory_batch import fact_hash

Kind = Literal["blob", "reflection", "fact"]

HEADINGS: dict[Kind, str] = {"blob": "## Summary", "reflection": "## Reflections", "fact": "## Facts"}

KINDS: dict[str, Kind] = {heading: kind for kind, heading in HEADINGS.items()}

BLOB = ""
"""The id of a scope's blob in its file."""

END = "<!-- end -->"

NEW = "new"
"""In a conflict file in place of the id of what was never memory."""

COMMENT = re.compile(r"(?<!\\)<!--\s*([A-Za-z0-9_.~%:/@-]{1,4096}?)\s*-->")

BULLET = re.compile(r"[-*+](?:\s+|$)")

MARKUP = re.compile(r"[\\`<\[]|&(?=#?\w+;)")

LEADING = re.compile(r"^(?: |(\d+(?=[.)]))?([#>\-+*=|~:_.)]))")

ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])|&#(\d{1,7});")

REORDERING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@dataclass(frozen=True, slots=True)
class MirrorLine:
    """One text of a file; `id` None: the user has added it."""

    kind: Kind
    id: str | None
    text: str


@dataclass(frozen=True, slots=True)
class MirrorPage:
    """The content of a scope's file."""

    scope_key: str
    base: str
    """Names the memory that the file was written from."""
    lines: Sequence[MirrorLine]
    strays: Sequence[str] = ()
    """Lines that belong to no item: before the sections, or headings that the user added."""
    pins: Sequence[str] = ()
    """Sentences that the blob must keep; they are shown, and not read from a file."""


def normalised(kind: Kind, text: str) -> str:
    """Return a text as a file holds it: facts and reflections in one line, blobs without surrounding space."""
    if kind != "blob":
        return " ".join(text.split())
    return "\n".join(line.rstrip() for line in re.split(r"\r\n|\r|\n", text)).strip()


def digest_of(text: str) -> str:
    """Return a hash that stands for a text in the mirror's own files, which hold no text."""
    return sha256(text.encode()).hexdigest()[:24]


def escaped(line: str) -> str:
    """Return one line of text as Markdown that shows it, and nothing else."""
    shown = "".join(map(_visible, MARKUP.sub(r"\\\g<0>", line)))
    return LEADING.sub(
        lambda found: "&#32;" if found[0] == " " else f"{found[1] or ''}\\{found[2]}", shown, 1
    )


def unescaped(text: str) -> str:
    """Return the text of Markdown that :func:`escaped` or a person wrote."""
    return ESCAPED.sub(_meant, text)


def _visible(character: str) -> str:
    hidden = unicodedata.category(character) in ("Cc", "Zl", "Zp") or character in REORDERING
    return f"&#{ord(character)};" if hidden else character


def _meant(found: re.Match[str]) -> str:
    if found[1] is not None:
        return found[1]
    number = int(found[2])
    return chr(number) if number < 0xD800 or 0xDFFF < number < 0x110000 else found[0]


def rendered(page: MirrorPage) -> str:
    """Return the file's text."""
    named: dict[str, object] = {"scope": page.scope_key, "base": page.base}
    named |= {"pinned": [" ".join(pin.split()) for pin in page.pins]} if page.pins else {}
    front = yaml.safe_dump(named, sort_keys=False, width=10_000, allow_unicode=True)
    parts = [f"---\n{front}---"]
    for kind, heading in HEADINGS.items():
        parts.append(heading)
        written = [_written(line) for line in page.lines if line.kind == kind]
        parts += ["\n".join(written)] if any(written) else []
    return "\n\n".join([*parts, END]) + "\n"


def _written(line: MirrorLine) -> str:
    if line.kind == "blob":
        return "\n".join(map(escaped, line.text.split("\n")))
    return f"- {escaped(line.text)}" + (f" <!-- {line.id} -->" if line.id is not None else "")


def parsed(text: str) -> MirrorPage | None:
    """Return the page that a file holds; None unless it has its front matter and its end, so is whole."""
    front, _, body = (
        text.replace("\r\n", "\n").removeprefix("\ufeff").removeprefix("---\n").partition("\n---\n")
    )
    try:
        named = yaml.safe_load(front) if body else None
    except (yaml.YAMLError, ValueError, RecursionError):
        named = None
    lines = body.split("\n")
    if not isinstance(named, dict) or END not in lines:
        return None
    key, base = (named.get(name) for name in ("scope", "base"))  # pyright: ignore
    if not isinstance(key, str) or not isinstance(base, str):
        return None
    reader = _PageReader()
    for line in lines:
        reader.take(line.rstrip())
    return MirrorPage(key, base, tuple(reader.lines()), tuple(reader.strays))


class _PageReader:
    """Gathers the lines of each section; lines that follow each other belong to one item."""

    def __init__(self) -> None:
        self.strays: list[str] = []
        self._kind: Kind | None = None
        self._items: list[tuple[Kind, list[str]]] = []
        self._blob: list[str] = []
        self._goes_on = False

    def take(self, line: str) -> None:
        """Add a line."""
        self._goes_on, went_on = False, self._goes_on
        if line in KINDS:
            self._kind = KINDS[line]
        elif line == END:
            self._kind = "fact"
        elif self._kind == "blob":
            self._blob.append(line)
        elif self._kind is None or line.startswith("#"):
            self.strays += [line] if line.strip() else []
        elif line.strip():
            self._take_item(self._kind, line.strip(), went_on=went_on)

    def _take_item(self, kind: Kind, line: str, *, went_on: bool) -> None:
        self._goes_on = True
        if went_on and not BULLET.match(line):
            self._items[-1][1].append(line)
        else:
            self._items.append((kind, [BULLET.sub("", line, count=1) if BULLET.match(line) else line]))

    def lines(self) -> Iterator[MirrorLine]:
        """Return what was found; an item without text is none."""
        yield MirrorLine("blob", BLOB, normalised("blob", "\n".join(map(unescaped, self._blob))))
        for kind, lines in self._items:
            joined = " ".join(lines)
            ids = COMMENT.findall(joined)
            text = normalised(kind, unescaped(COMMENT.sub(" ", joined)))
            if text:
                yield MirrorLine(kind, ids[-1] if ids else None, text)


def conflict_line(item_id: str, why: str, text: str) -> str:
    """Return the line of a conflict file: the user's text, and why it is not in memory."""
    return f"- {escaped(why)}: {escaped(text.replace(chr(10), ' / '))} <!-- {item_id or NEW} -->"


def conflict_ids(text: str) -> set[str]:
    """Return the ids of memory that a conflict file names."""
    return set(COMMENT.findall(text)) - {NEW}


def without_conflicts(text: str, gone: Callable[[str], bool]) -> str:
    """Return a conflict file's text without the lines of memory that is gone."""
    kept = [line for line in text.split("\n") if not any(map(gone, COMMENT.findall(line)))]
    return "\n".join(kept)


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
