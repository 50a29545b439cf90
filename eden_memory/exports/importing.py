"""A file of `eden export` → memory.facts, memory.reflections, memory.consolidations: its records, under their keys.

Only scopes that hold nothing take records; the writer, a rebuild and all readers of the topics treat them like any
others. The file is read twice: to check it whole and to learn what of it is forgotten here, then to publish it.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from eden_memory.exports.export_file import (
    BadLine,
    GapLine,
    Line,
    RecordLine,
    end_of,
    header_of,
    read_lines,
)
from eden_memory.exports.exported_scope_store import STAGE, ScopeClaims
from eden_memory.exports.forgotten_here import ForgottenHere
from eden_memory.forgetting.mark_store import MongoBatchMarks
from eden_memory.forgotten import Marks
from eden_memory.memory.memory_batch import Memory, blob_ended, named_by
from eden_memory.replay.installation import Installation
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import ScopeConsolidated
from eden_memory.schemas.events.base import Event
from eden_memory.schemas.exported import ExportHeader
from eden_memory.stages.outcome import StoredRecord
from eden_memory.stages.publishing import Publisher, new_producer

TOGETHER = 1_000
"""Lines that are published together; a file is always cut into the same batches."""
Progress = Callable[[str, int, int], None]
"""Gets what is being done, and how much of how much is done."""


@dataclass(slots=True)
class CheckedExport:
    """A file that was read to its end, and what it meets here."""

    path: Path
    header: ExportHeader
    lines: int
    records: Counter[str] = field(default_factory=Counter[str])
    """By kind of event."""
    bad: list[BadLine] = field(default_factory=list[BadLine])
    scopes: dict[str, int] = field(default_factory=dict[str, int])
    """Every scope of the file, with its highest blob version (0: none)."""
    held: set[str] = field(default_factory=set[str])
    """Scopes that hold something else here."""
    forgotten: ForgottenHere = field(default_factory=ForgottenHere)

    def learn(self, event: Memory, marks: Marks) -> None:
        """Take in a record."""
        self.records[event.NAME] += 1
        blob = event.version if isinstance(event, ScopeConsolidated) else 0
        self._number(event.scope.key, blob)
        self.forgotten.learn(event, marks)

    def learn_gap(self, gap: GapLine) -> None:
        """Take in the number of a forgotten blob version."""
        self._number(gap.scope, gap.version)

    def _number(self, key: str, version: int) -> None:
        self.scopes[key] = max(version, self.scopes.get(key, 0))


@dataclass(slots=True)
class ImportedExport:
    """The figures of an import; lines that an earlier run had published are not among the records."""

    published: int = 0
    before: int = 0
    """Lines that an earlier run of the same file had published."""
    forgotten: int = 0
    """Records that are forgotten here, and so left out."""
    held: int = 0
    """Records of scopes that hold something else here."""


class _Batch(NamedTuple):
    """Some lines of the file, with the marks of forgetting on what they name."""

    last: int
    lines: Sequence[Line | BadLine]
    marks: Marks

    @property
    def records(self) -> Iterator[RecordLine]:
        """The records among the lines."""
        return (line for line in self.lines if isinstance(line, RecordLine))


@dataclass(frozen=True, slots=True)
class ExportImport:
    """The import of one file into the live memory; any number of runs give the same result."""

    at: Installation
    path: Path
    on_progress: Progress

    async def check(self) -> CheckedExport:
        """Read the whole file and change nothing; Invalid where it is no export, or was cut off."""
        header, end = header_of(self.path), end_of(self.path)
        checked = CheckedExport(self.path, header, end.records + end.gaps)
        claims = self._claims(header)
        async with aclosing(self._batches("checking", checked.lines)) as batches:
            async for batch in batches:
                for line in batch.lines:
                    _learn(checked, line, batch.marks)
                checked.held |= await claims.held({line.line.scope for line in batch.records})
        return checked

    async def run(self, checked: CheckedExport) -> ImportedExport:
        """Claim the scopes, then publish their records; `eden run` writes them to MongoDB."""
        imported, claims = ImportedExport(), self._claims(checked.header)
        free = {key: highest for key, highest in checked.scopes.items() if key not in checked.held}
        checked.held |= set(free) - await claims.claim(free)
        async with (
            self._publisher() as publisher,
            aclosing(self._batches("importing", checked.lines)) as batches,
        ):
            async for batch in batches:
                if await claims.published(batch.last):
                    imported.before += len(batch.lines)
                    continue
                for record in batch.records:
                    checked.forgotten.learn(record.event, batch.marks)
                await publisher.publish(list(self._records(batch, checked, imported)))
                await claims.note_published(batch.last)
        return imported

    async def _batches(self, what: str, whole: int) -> AsyncGenerator[_Batch]:
        marks, lines, passed = (
            MongoBatchMarks(self.at.database, self.at.settings.names),
            read_lines(self.path),
            0,
        )
        while some := list(islice(lines, TOGETHER)):
            events = [line.event for line in some if isinstance(line, RecordLine)]
            yield _Batch(some[-1].number, some, await marks.among(named_by(events)))
            passed += len(some)
            self.on_progress(what, passed, whole)

    def _records(
        self, batch: _Batch, checked: CheckedExport, imported: ImportedExport
    ) -> Iterator[StoredRecord]:
        """Yield the batch's records as they are published, and count the others."""
        for line in batch.lines:
            match line:
                case RecordLine() if line.line.scope in checked.held:
                    imported.held += 1
                case RecordLine(event=ScopeConsolidated() as blob) if checked.forgotten.withdraws(blob):
                    imported.forgotten += 1
                    yield self._gap(blob.scope.key, blob.version)
                case RecordLine() if checked.forgotten.drops(line.event, batch.marks):
                    imported.forgotten += 1
                case RecordLine():
                    imported.published += 1
                    yield self._stored(line.envelope, type(line.event), line.line.key, line.value)
                case GapLine() if line.scope not in checked.held:
                    yield self._gap(line.scope, line.version)
                case _:
                    pass

    def _gap(self, key: str, version: int) -> StoredRecord:
        envelope = blob_ended(key, version, STAGE)
        return self._stored(envelope, ScopeConsolidated, f"{key}@{version}", None)

    def _stored(self, envelope: Envelope, kind: type[Event], key: str, value: bytes | None) -> StoredRecord:
        topic = self.at.topics(self.at.settings.placement).topic_of(kind)
        headers = tuple(envelope.headers())
        return StoredRecord(topic, envelope.ordering_key.encode(), key.encode(), value, headers)

    def _claims(self, header: ExportHeader) -> ScopeClaims:
        return ScopeClaims(self.at.database, self.at.settings.names, header.export_id)

    @asynccontextmanager
    async def _publisher(self) -> AsyncGenerator[Publisher]:
        publisher = Publisher(lambda: new_producer(self.at.client))
        await publisher.start()
        try:
            yield publisher
        finally:
            await publisher.stop()


def _learn(checked: CheckedExport, line: Line | BadLine, marks: Marks) -> None:
    match line:
        case RecordLine():
            checked.learn(line.event, marks)
        case GapLine():
            checked.learn_gap(line)
        case BadLine():
            checked.bad.append(line)
