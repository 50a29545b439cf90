"""An export file: written whole or not at all, and read line by line, with the reason for each line that is bad."""

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import orjson
from pydantic import BaseModel, ValidationError

from eden_memory.errors import Conflict, Invalid, NotFound
from eden_memory.files.file_items import TOO_LONG, bounded_lines
from eden_memory.memory.memory_batch import Memory
from eden_memory.schemas.envelope import (
    STORE_FORMAT,
    Envelope,
    EnvelopeError,
    event_type,
    parse_type,
    rfc3339,
)
from eden_memory.schemas.events import REGISTRY, ScopeConsolidated
from eden_memory.schemas.exported import ExportedGap, ExportedRecord, ExportEnd, ExportHeader, ExportLine
from eden_memory.schemas.reasons import reasons
from eden_memory.schemas.registry import SchemaViolation
from eden_memory.schemas.scopes import Scope

PARTIAL = ".partial"

LONGEST_END = 4_096
"""Most bytes of the first and the last line."""

MOST_VERSIONS = 100_000

AGAIN = "Export again, or copy the file again."

LINE_BREAKS = bytes.maketrans(b"\r\n", b"  ")
"""JSON has them between tokens only, where a space does as well."""


def without_data(envelope: Envelope, key: str) -> bytes:
    """Return a record's line up to its data, which is its last field."""
    head = {
        "line": "record",
        "key": key,
        "scope": envelope.ordering_key,
        "type": event_type(envelope.name, envelope.version),
        "id": envelope.id,
        "source": envelope.source,
        "time": rfc3339(envelope.time),
        "traceparent": envelope.traceparent,
    }
    return orjson.dumps(head)[:-1] + b',"data":'


class ExportWriter:
    """Writes the lines in order; counts them for the closing line."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.records = self.gaps = 0

    def header(self, header: ExportHeader) -> None:
        """Write the first line."""
        self._line(header)

    def record(self, head: bytes, value: bytes) -> None:
        """Write a record: the line as `without_data` gave it, then its value as it stands in the topic."""
        self._file.write(head + value.translate(LINE_BREAKS) + b"}\n")
        self.records += 1

    def gap(self, scope: str, version: int) -> None:
        """Write the number of a forgotten blob version."""
        self._line(ExportedGap(scope=scope, version=version))
        self.gaps += 1

    def end(self) -> None:
        """Write the closing line."""
        self._line(ExportEnd(records=self.records, gaps=self.gaps))

    def _line(self, line: BaseModel) -> None:
        self._file.write(line.model_dump_json().encode() + b"\n")


@contextmanager
def writing(path: Path) -> Generator[ExportWriter]:
    """Write a file that only its owner can read, and move it to `path` once it is whole; Conflict if that exists."""
    if path.exists():
        raise Conflict(f"{path} exists", "Give another name, or remove it.")
    partial = path.with_name(path.name + PARTIAL)
    try:
        partial.unlink(missing_ok=True)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileNotFoundError:
        raise NotFound(f"there is no folder {path.parent}", "Make it, or give another one.") from None
    try:
        with open(descriptor, "wb", buffering=1 << 20) as file:
            yield ExportWriter(file)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)


class Selection(NamedTuple):
    """Whose memory is exported, by typed ids; None: everybody's."""

    agent: str | None = None
    user: str | None = None

    def takes(self, scope: Scope) -> bool:
        """Whether a scope's memory is part of it; of a user's, sessions in which nobody else was are part, too."""
        if self.agent not in (None, scope.agent_id):
            return False
        own = scope.user_id == self.user or (scope.kind == "session" and scope.audience == (self.user,))
        return self.user is None or own


class BadLine(NamedTuple):
    """A line that cannot be used; the reason contains no content."""

    number: int
    reason: str


class RecordLine(NamedTuple):
    """A record with its event in the newest version; `value` in the version of its type."""

    number: int
    line: ExportedRecord
    event: Memory
    value: bytes

    @property
    def scope(self) -> str:
        """The key of its scope."""
        return self.line.scope

    @property
    def envelope(self) -> Envelope:
        """The attributes that the record had."""
        name, version = parse_type(self.line.type)
        about = self.event.envelope(self.line.id, self.line.source, self.line.time, self.line.traceparent)
        return about._replace(name=name, version=version)


class GapLine(NamedTuple):
    """The number of a forgotten blob version."""

    number: int
    scope: str
    version: int


Line = RecordLine | GapLine


def header_of(path: Path) -> ExportHeader:
    """Return the first line; Invalid if it is not that of an export that this program can read."""
    hint = "`eden export` writes such files."
    try:
        with path.open("rb") as file:
            header = ExportLine.model_validate_json(file.readline(LONGEST_END), extra="ignore").root
    except ValidationError:
        raise Invalid(f"{path} is not an export", hint) from None
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}", hint) from None
    if not isinstance(header, ExportHeader):
        raise Invalid(f"{path} is not an export", hint)
    if header.version > ExportLine.VERSION:
        wanted = f"it is of version {header.version}, and this program reads up to {ExportLine.VERSION}"
        raise Invalid(f"{path} was written by a newer program: {wanted}", "Import it with a newer program.")
    if header.store_format != STORE_FORMAT:
        wanted = f"it is of store format {header.store_format}, and this program reads {STORE_FORMAT}"
        raise Invalid(f"{path} was written by another version: {wanted}", "Import it with that version.")
    return header


def end_of(path: Path) -> ExportEnd:
    """Return the closing line; Invalid if there is none, because the file was cut off."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LONGEST_END))
        last = file.read().rstrip().rpartition(b"\n")[2]
    try:
        end = ExportLine.model_validate_json(last, extra="ignore").root
    except ValidationError:
        end = None
    if not isinstance(end, ExportEnd):
        raise Invalid(f"{path} was cut off: its closing line is missing", AGAIN)
    return end


def read_lines(path: Path) -> Iterator[Line | BadLine]:
    """Yield the lines between header and closing line; Invalid at the end if some are missing."""
    end, found, header = end_of(path), 0, header_of(path)
    selection, scopes = Selection(header.agent_id, header.user_id), set[str]()
    with path.open("rb") as file:
        file.readline()
        for number, raw in enumerate(bounded_lines(file), 2):
            read = BadLine(number, TOO_LONG) if raw is None else _read(number, raw)
            if not isinstance(read, ExportEnd):
                found += 1
                yield _selected(read, selection, scopes)
    if found != (expected := end.records + end.gaps):
        what = f"{path} has {found:,} lines of memory, and its closing line says {expected:,}"
        raise Invalid(what, AGAIN)


def _selected(line: Line | BadLine, selection: Selection, scopes: set[str]) -> Line | BadLine:
    """Return a BadLine if the header does not announce this line; `scopes`: of the records before it."""
    match line:
        case RecordLine() if selection.takes(line.event.scope):
            if selection != Selection():
                scopes.add(line.scope)
            return line
        case GapLine() if selection == Selection() or line.scope in scopes:
            return line
        case BadLine():
            return line
        case _:
            return BadLine(line.number, "its scope is not of this export")


def _read(number: int, raw: bytes) -> Line | BadLine | ExportEnd:
    try:
        line = ExportLine.model_validate_json(raw, extra="ignore").root
        match line:
            case ExportedRecord():
                return _record(number, line)
            case ExportedGap():
                return _numbered(GapLine(number, line.scope, line.version), line.version)
            case ExportEnd():
                return line
            case ExportHeader():
                return BadLine(number, "a second header")
    except ValidationError as error:
        return BadLine(number, reasons(error))
    except (SchemaViolation, EnvelopeError) as error:
        return BadLine(number, str(error))


def _record(number: int, line: ExportedRecord) -> Line | BadLine:
    value = orjson.dumps(line.data)
    event = REGISTRY.decode(*parse_type(line.type), value)
    if not isinstance(event, Memory):
        return BadLine(number, f"{event.NAME} is not an event of memory")
    if (event.key(), event.scope.key) != (line.key, line.scope):
        return BadLine(number, "key or scope are not those of the data")
    version = event.version if isinstance(event, ScopeConsolidated) else 0
    return _numbered(RecordLine(number, line, event, value), version)


def _numbered(line: Line, version: int) -> Line | BadLine:
    """Return a BadLine instead if its blob version is too high: an import claims all numbers up to it."""
    return line if version <= MOST_VERSIONS else BadLine(line.number, f"a version above {MOST_VERSIONS:,}")
