"""Memories in files: JSON (mem0's exports and payloads), Markdown with front matter, files of a mirror."""

import re
from codecs import BOM_UTF8, getincrementaldecoder
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import partial
from json import JSONDecodeError, JSONDecoder
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import orjson
import yaml

from eden_memory.errors import Invalid, NotAnId, NotFound
from eden_memory.files.import_items import (
    Entry,
    ImportedAs,
    ImportedItem,
    ImportMapping,
    SkippedItem,
    Unimportable,
    imported_or_skipped,
    stream_of,
)
from eden_memory.files.mirror_page import MirrorPage, parsed
from eden_memory.mongo.ids import raw
from eden_memory.schemas.scopes import Scope

PART, LONGEST = 1_000_000, 64_000_000

"""Characters read at once; bytes of one line or element, at most."""

LONG_NUMBER = 100

TOO_LONG = f"it is longer than {LONGEST:,} bytes"

ARRAY = re.compile(r'\s*(\{\s*"[A-Za-z_]+"\s*:\s*)?\[')

BLANK = re.compile(r"[\s,]*")

MARKS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)

OPENING, CLOSING = ("[", "{"), ("]", "}")


class Element(NamedTuple):
    """One element; `why` says why it cannot be read, or is None."""

    where: str
    value: Any
    why: str | None = None

    @property
    def fields(self) -> Mapping[str, Any] | None:
        """The element if it is an object."""
        value: object = self.value
        return cast("Mapping[str, Any]", value) if isinstance(value, dict) else None


def elements(path: Path) -> Iterator[Element]:
    """Yield the elements of a file; an element that cannot be read says why."""
    with opened(path) as file:
        begin = file.read(PART).decode("utf-8-sig", errors="replace")
        file.seek(0)
        if (array := ARRAY.match(begin)) is not None:
            yield from _of_array(file, array.end())
        else:
            yield from _of_lines(file)


def opened(path: Path) -> BinaryIO:
    """Open a file to be read; NotFound or Invalid."""
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}") from None


def bounded_lines(file: BinaryIO) -> Iterator[bytes | None]:
    """Yield the lines of a file; None for one that is too long to be read."""
    while line := file.readline(LONGEST):
        too_long = len(line) == LONGEST and not line.endswith(b"\n")
        while too_long and (rest := file.readline(LONGEST)) and not rest.endswith(b"\n"):
            continue
        yield None if too_long else line


def _of_lines(file: BinaryIO) -> Iterator[Element]:
    for number, line in enumerate(bounded_lines(file), 1):
        where = f"line {number}"
        if line is None:
            yield Element(where, None, TOO_LONG)
        elif line.strip():
            yield _parsed(where, line)


def _parsed(where: str, line: bytes) -> Element:
    try:
        return Element(where, orjson.loads(line.removeprefix(BOM_UTF8)))
    except orjson.JSONDecodeError:
        return Element(where, None, "it is not valid JSON")


def _of_array(file: BinaryIO, begin: int) -> Iterator[Element]:
    """Yield the elements of an array; nothing can be read after a broken one."""
    decoder, number = JSONDecoder(parse_int=_number), 0
    text = _Text(file, begin)
    while (character := text.next_character()) != "]":
        number += 1
        found: Element | None = None
        while character and found is None:
            try:
                element, text.at = decoder.raw_decode(text.read, text.at)
                found = Element(f"item {number}", element)
            except RecursionError:
                if (end := _end_of(text.read, text.at)) is not None:
                    found, text.at = Element(f"item {number}", None, "it is nested too deeply"), end
                elif len(text.read) - text.at > LONGEST or not text.more():
                    break
            except JSONDecodeError:
                if len(text.read) - text.at > LONGEST or not text.more():
                    break
        if found is None:
            yield Element(f"item {number}", None, "it is not valid JSON, and what follows cannot be read")
            return
        yield found


def _end_of(text: str, at: int) -> int | None:
    """Return the end of a list or object that is nested too deeply to be read; None if the text ends first."""
    depth = 0
    for mark in MARKS.finditer(text, at):
        depth += (mark.group() in OPENING) - (mark.group() in CLOSING)
        if depth == 0 and mark.group() in CLOSING:
            return mark.end()
    return None


def _number(digits: str) -> int | float:
    """Return a number as orjson does: int() refuses thousands of digits."""
    return int(digits) if len(digits) < LONG_NUMBER else float(digits)


class _Text:
    """A part of a file, as text, and the place in it."""

    def __init__(self, file: BinaryIO, at: int) -> None:
        self._file, self._decoder = file, getincrementaldecoder("utf-8-sig")(errors="replace")
        self.read, self.at = self._next(PART), at

    def _next(self, size: int) -> str:
        found = self._file.read(size)
        return self._decoder.decode(found, final=not found)

    def more(self) -> bool:
        """Read on, at least as much as is left to parse; return False at the end of the file."""
        found = self._next(max(PART, len(self.read) - self.at))
        self.read, self.at = self.read[self.at :] + found, 0
        return bool(found)

    def next_character(self) -> str:
        """Move to what is neither blank nor a comma; return it, "" at the end of the file."""
        while True:
            blank = BLANK.match(self.read, self.at)
            self.at = blank.end() if blank is not None else self.at
            if self.at < len(self.read):
                return self.read[self.at]
            if not self.more():
                return ""


Fields = Mapping[str, Any]

TURNS = ("user", "assistant", "system", "tool")

BLOBS, REFLECTIONS = frozenset({"summary", "blob"}), frozenset({"reflection"})


async def mem0(path: str, to: ImportedAs) -> AsyncIterator[Entry]:
    """Yield mem0's memories: a line each, or a list as its API returns it."""
    for element in elements(Path(path)):
        yield imported_or_skipped(element.where, partial(_memory, element, to))


def _memory(element: Element, to: ImportedAs) -> ImportedItem:
    fields = fields_of(element)
    for nested in ("payload", "metadata"):
        if isinstance(inner := fields.get(nested), Mapping):
            own_fields = {name: value for name, value in fields.items() if value is not None}
            fields = {**cast("Fields", inner), **own_fields}
    user, agent, run = (fields.get(name) for name in ("user_id", "agent_id", "run_id"))
    if agent and run and not user:
        raise Unimportable("it is of one conversation: it names an agent_id and a run_id, and no user_id")
    if not (user or agent or to.mapping.user) and run:
        raise Unimportable("it names only a run_id; say with --user whose it is")
    text = next((fields[name] for name in ("memory", "data", "text") if fields.get(name)), None)
    own = fields.get("id") or fields.get("hash")
    return to.fact(element.where, own, text, to.mapping.scope(agent, user), _newest(fields))


def fields_of(element: Element) -> Fields:
    """Return an element that is an object; Unimportable."""
    if element.fields is None:
        raise Unimportable(element.why or "it is not a JSON object", bad=True)
    return element.fields


def _newest(fields: Fields) -> Any:
    """Return since when the text is true: the time of its last change."""
    return fields.get("updated_at") or fields.get("created_at")


async def markdown(path: str, to: ImportedAs) -> AsyncIterator[Entry]:
    """Yield the memories of a folder in the order of its files' names: one a file, or those of a mirror's scope."""
    for entry in _in_folder(Path(path), to):
        yield entry


def _in_folder(folder: Path, to: ImportedAs) -> Iterator[Entry]:
    if not folder.is_dir():
        raise Invalid(f"{folder} is not a folder", "Give the folder that holds the Markdown files.")
    for file in _files(folder):
        inside = file.relative_to(folder)
        if "deleted" in inside.parts[:-1]:
            yield SkippedItem(str(inside), "it was deleted in the source")
        else:
            yield from _in_file(file, str(inside), to)


def _files(folder: Path) -> Iterator[Path]:
    for inside in sorted(folder.iterdir()):
        if inside.name.startswith("."):
            continue  # notes of the mirror or of git
        if inside.is_dir() and not inside.is_symlink():
            yield from _files(inside)
        elif inside.suffix == ".md" and inside.is_file():
            yield inside


def _in_file(file: Path, where: str, to: ImportedAs) -> Iterator[Entry]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        yield SkippedItem(where, "it cannot be read as UTF-8", bad=True)
        return
    page = parsed(text)
    if page is None:
        yield imported_or_skipped(where, partial(_memory_file, text, where, to))
    else:
        found = imported_or_skipped(where, partial(_mirrored, page, where, to))
        yield from [found] if isinstance(found, SkippedItem) else found


def _mirrored(page: MirrorPage, where: str, to: ImportedAs) -> list[Entry]:
    """Return a scope's memories: a line each; the summary becomes the scope's consolidated text."""
    scope, found = _scope_of(page.scope_key, to.mapping), list[Entry]()
    if scope.kind == "shard":
        blob = next((line.text for line in page.lines if line.kind == "blob"), "")
        found.append(ImportedItem(where, "shard", stream_of({"content": blob}, scope), scope))
    make = {"blob": to.blob, "reflection": to.reflection, "fact": to.fact}
    for number, line in enumerate(page.lines):
        if line.text:
            place = f"{where}, {line.kind} {number}"
            item = partial(make[line.kind], place, line.id, line.text, scope, None)
            found.append(imported_or_skipped(place, item))
    return found


def _scope_of(key: str, mapping: ImportMapping) -> Scope:
    """Return our scope for the key of a mirror's scope; Unimportable for a session's."""
    try:
        named = Scope.of_key(key, mapping.agent)
        agent = mapping.agent_of(raw(named.agent_id, "agent"))
        user = None if named.user_id is None else mapping.user_of(raw(named.user_id, "user"))
    except (ValueError, NotAnId):
        raise Unimportable("its front matter names no scope", bad=True) from None
    match named:
        case Scope(kind="session"):
            raise Unimportable("it is the memory of one session; import its conversation")
        case Scope(group_id=str(group)):
            return Scope.of_group(agent, group)
        case Scope(shard=str(shard)):
            return Scope.of_shard(agent, shard)
        case _:
            return Scope.of_agent(agent) if user is None else Scope.of_user(agent, user)


def _memory_file(file: str, where: str, to: ImportedAs) -> ImportedItem:
    head, text = _parts(file)
    if "scope" in head and "base" in head:
        raise Unimportable("it is a mirror's file that has lost its last line", bad=True)
    role = head.get("role")
    kind: Any = "summary" if head.get("summary_kind") else head.get("kind") or role
    if not isinstance(kind, str | None):
        raise Unimportable("its kind is no text", bad=True)
    if kind in TURNS:
        raise Unimportable("it is a turn of a conversation, not a memory")
    if head.get("replaced_by"):
        raise Unimportable("another memory replaced it in the source")
    # agent_cli keeps one memory for each conversation id: whoever talks there is the user here.
    user = head.get("user_id") or head.get("conversation_id")
    scope = to.mapping.scope(head.get("agent_id"), user)
    make = to.blob if kind in BLOBS else to.reflection if kind in REFLECTIONS else to.fact
    return make(where, head.get("id"), text, scope, _newest(head))


def _parts(text: str) -> tuple[Fields, str]:
    """Return front matter and text; Unimportable without front matter."""
    lines = text.lstrip("\ufeff").splitlines()
    if not lines or lines[0].strip() != "---" or "---" not in (ends := [line.strip() for line in lines[1:]]):
        raise Unimportable("it has no YAML front matter")
    end = ends.index("---") + 1
    try:
        head = yaml.load("\n".join(lines[1:end]), yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError):
        raise Unimportable("its front matter is not valid YAML", bad=True) from None
    if not isinstance(head, Mapping):
        raise Unimportable("its front matter is not a mapping", bad=True)
    return cast("Fields", head), "\n".join(lines[end + 1 :]).strip()
