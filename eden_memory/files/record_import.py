"""A file of `eden export` → memory.facts, memory.reflections, memory.consolidations: its records, under their keys.

Only scopes that hold nothing take records; the writer, a rebuild and all readers of the topics treat them like any
others. The file is read twice: first to check all of it and to find what is forgotten here, then to publish it.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from eden_memory.errors import Conflict
from eden_memory.files.export_file import BadLine, GapLine, Line, RecordLine, end_of, header_of, read_lines
from eden_memory.files.exporting import STAGE, Owned, ScopeClaims, owned_elsewhere
from eden_memory.files.import_items import ImportedAs, ImportReport, Kind, SkippedItem
from eden_memory.files.import_store import MongoImports
from eden_memory.files.importing import FORGOTTEN, ForeignImport, Progress
from eden_memory.files.record_rules import ForgottenHere, HeldMemory, JudgedElsewhere
from eden_memory.forgetting.mark_store import MongoBatchMarks
from eden_memory.forgotten import Marks
from eden_memory.kafka.topic_admin import topics_exist
from eden_memory.kafka.topics import Topics
from eden_memory.memory.memory_batch import Memory, blob_ended, fact_hash, named_by
from eden_memory.redaction import Redactor, redactor_of
from eden_memory.replay.installation import Installation
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import FactChanged, ReflectionFormed, ScopeConsolidated
from eden_memory.schemas.events.base import Event
from eden_memory.stages.outcome import Reread, StoredRecord
from eden_memory.stages.partition_count_store import PartitionCounts
from eden_memory.stages.publishing import Publisher, new_producer

TOGETHER = 1_000
"""Lines that are published together; a file is always cut into the same batches."""


@dataclass(slots=True)
class OwnImportReport(ImportReport):
    """The numbers of imported items of an export; a memory counts once, whatever its history."""

    records: int = 0
    """Published under their keys: versions of memories, ends of sessions, numbers of forgotten blobs."""
    held_scopes: int = 0
    commands: Counter[Kind] = field(default_factory=Counter[Kind])
    """Those of `taken` that are commands, because their scopes held something."""
    unfinished: bool = False
    """Whether an import that was stopped is to be finished."""

    def take_record(self, event: Memory, *, earlier: bool) -> None:
        """Count a record that is published; `earlier`: a version before the last one of the same memory."""
        self.records += 1
        if not earlier and (kind := _KINDS.get(type(event))) is not None:
            self.taken[kind] += 1

    def take_commands(self, report: ImportReport, scopes: int) -> None:
        """Add what commands take in scopes that hold something."""
        self.held_scopes, self.commands = scopes, report.taken
        self.add(report)

    def add(self, report: ImportReport) -> None:
        """Add what another import takes."""
        self.taken += report.taken
        self.known += report.known
        for reason, group in report.skipped.items():
            for place in group.places:
                self.skip(SkippedItem(place, reason, group.bad))
            self.skipped[reason].count += group.count - len(group.places)

    @property
    def empty(self) -> bool:
        """Whether nothing is taken."""
        return not (self.taken or self.records or self.unfinished)

    def lines(self, did: str) -> Iterator[str]:
        """Yield the report for people."""
        yield from ImportReport.lines(self, did)
        if self.records:
            yield f"as they were exported, with their history: {self.records:,} records"
        if self.held_scopes:
            counts = ", ".join(f"{kind} {number:,}" for kind, number in self.commands.items()) or "nothing"
            yield f"scopes that hold memory here already: {self.held_scopes:,}; added to them by commands: {counts}"


_KINDS: dict[type[Event], Kind] = {
    FactChanged: "fact",
    ReflectionFormed: "reflection",
    ScopeConsolidated: "blob",
}


class _Batch(NamedTuple):
    """Some lines of the file, with the marks of forgetting on what they name."""

    last: int
    lines: Sequence[Line | BadLine]
    marks: Marks

    @property
    def scopes(self) -> set[str]:
        """The scopes of the lines."""
        return {line.scope for line in self.lines if not isinstance(line, BadLine)}


@dataclass(slots=True)
class ExportImport:
    """The import of one file into the live memory; any number of runs give the same result."""

    at: Installation
    path: Path
    to: ImportedAs
    by_id: bool = False
    """Whether a scope that holds memory takes nothing that is here under the same id, whatever became of it."""
    _highest: dict[str, int] = field(default_factory=dict[str, int])
    """Every scope of the file, with its highest blob version (0: none)."""
    _forgotten: ForgottenHere = field(default_factory=ForgottenHere)
    _last: str = ""
    """The memory whose record was taken last."""
    _held: HeldMemory = field(init=False)
    _judged: JudgedElsewhere = field(init=False)
    _claims: ScopeClaims = field(init=False)
    _topics: Topics = field(init=False)
    _redactor: Redactor | None = field(init=False)

    def __post_init__(self) -> None:
        self._held, self._judged = HeldMemory(self._forgotten), JudgedElsewhere(self._forgotten)
        self._topics = self.at.topics(self.at.settings.placement)
        self._redactor = redactor_of(self.at.settings)
        header = header_of(self.path)
        self._claims = ScopeClaims(self.at.database, self.at.settings.names, header.export_id)

    async def survey(self, on_progress: Progress) -> OwnImportReport:
        """Read the whole file and return what would be taken; Invalid where it was cut off."""
        await topics_exist(self.at.admin, map(self._topics.topic_of, _KINDS))
        report = OwnImportReport()
        async with aclosing(self._batches(on_progress)) as batches:
            async for batch in batches:
                self._held.scopes |= await self._claims.held(batch.scopes)
                if self.by_id:
                    self._held.known |= await self._known(batch)
                    held = self._held.scopes & batch.scopes
                    self._held.with_blob |= await MongoImports(self.at).blobs(held)
                judged = await self._without_others(batch)
                self._learn(judged)
                if await self._claims.published(batch.last):
                    report.known += len(batch.lines)
                else:
                    self._records(judged, report)
        return await self._with_commands(report, on_progress, survey=True)

    async def run(self, whole: int, on_progress: Progress) -> OwnImportReport:
        """Publish what `survey` has found; Conflict where a scope has been written to meanwhile."""
        del whole
        report = OwnImportReport()
        await self._claim()
        async with self._publisher() as publisher, aclosing(self._batches(on_progress)) as batches:
            async for batch in batches:
                if await self._claims.published(batch.last):
                    report.known += len(batch.lines)
                    continue
                judged = await self._without_others(batch)
                self._learn(judged)
                await publisher.publish(self._records(judged, report))
                await self._claims.note_published(batch.last)
        return await self._with_commands(report, on_progress, survey=False)

    async def _with_commands(
        self, report: OwnImportReport, on_progress: Progress, *, survey: bool
    ) -> OwnImportReport:
        """Import what belongs to scopes that hold something, or only say what that would be."""
        if self._held.scopes:
            work = ForeignImport(self.at, self._held.items, str(self.path), self.to)
            commands = await (work.survey(on_progress) if survey else work.run(0, on_progress))
            report.take_commands(commands, len(self._held.scopes))
            report.known += len(self._held.known)
        return report

    async def _claim(self) -> None:
        free = {key: number for key, number in self._highest.items() if key not in self._held.scopes}
        if (taken := set(free) - await self._claims.claim(free)) and await self._claims.release(
            taken, datetime.now(UTC)
        ):
            what = (
                f"another import has claimed {len(taken):,} of the file's scopes, and has not filled them yet"
            )
            raise Conflict(what, "Let it finish. If it was stopped for good, repeat this command in an hour.")
        if taken and (taken := taken - await self._claims.claim({key: free[key] for key in taken})):
            what = f"memory is being formed just now in {len(taken):,} of the file's scopes"
            raise Conflict(what, "Run the command again in a moment.")
        try:
            await self._claims.mark_judged(self._judged.ids)
        except Reread:
            what = "propagation is judging some of the file's reflections just now"
            raise Conflict(what, "Run the command again in a moment.") from None

    async def _batches(self, on_progress: Progress) -> AsyncGenerator[_Batch]:
        end, lines, passed = end_of(self.path), read_lines(self.path), 0
        marks = MongoBatchMarks(self.at.database, self.at.settings.names)
        while some := list(islice(lines, TOGETHER)):
            events = [line.event for line in some if isinstance(line, RecordLine)]
            yield _Batch(some[-1].number, some, await marks.among(named_by(events)))
            passed += len(some)
            on_progress(passed, end.records + end.gaps)

    async def _without_others(self, batch: _Batch) -> _Batch:
        """Return the batch with a BadLine for each record whose memory belongs to another scope here."""
        owners = {
            (type(line.event), line.event.subject()): line.scope
            for line in batch.lines
            if isinstance(line, RecordLine) and line.scope not in self._held.scopes
        }
        elsewhere = await owned_elsewhere(self.at.database, self.at.settings.names, owners)
        return batch._replace(lines=[_unless_in(elsewhere, line) for line in batch.lines])

    async def _known(self, batch: _Batch) -> set[str]:
        """Return the facts and reflections of scopes that hold something, which are here under the same id."""
        named = {
            (type(line.event), line.event.subject()): ""
            for line in batch.lines
            if isinstance(line, RecordLine) and line.scope in self._held.scopes
        }
        return {name for _, name in await owned_elsewhere(self.at.database, self.at.settings.names, named)}

    def _learn(self, batch: _Batch) -> None:
        for line in batch.lines:
            if isinstance(line, BadLine):
                continue
            number = line.version if isinstance(line, GapLine) else 0
            if isinstance(line, RecordLine):
                self._forgotten.learn(line.event, batch.marks)
                self._held.learn(line.event)
                self._judged.learn(line.event, held=line.scope in self._held.scopes)
                number = line.event.version if isinstance(line.event, ScopeConsolidated) else 0
            self._highest[line.scope] = max(number, self._highest.get(line.scope, 0))

    def _records(self, batch: _Batch, report: OwnImportReport) -> list[StoredRecord]:
        """Return the batch's records as they are published; the report counts them, and the others."""
        found: list[StoredRecord] = []
        for line in batch.lines:
            match line:
                case BadLine():
                    report.skip(SkippedItem(f"line {line.number}", line.reason, bad=True))
                case _ if line.scope in self._held.scopes:
                    continue
                case GapLine():
                    report.records += 1
                    found.append(self._gap(line.scope, line.version))
                case RecordLine():
                    found += self._record(line, batch.marks, report)
        return found

    def _record(self, line: RecordLine, marks: Marks, report: OwnImportReport) -> list[StoredRecord]:
        """Return a record as it is published: of a forgotten blob version its number, else nothing if forgotten."""
        event = line.event
        if (withdrawn := self._forgotten.withdraws(event)) or self._forgotten.drops(event, marks):
            report.skip(SkippedItem(f"line {line.number}", FORGOTTEN))
            number = event.version if isinstance(event, ScopeConsolidated) else 0
            return [self._gap(line.scope, number)] if withdrawn else []
        report.take_record(event, earlier=event.subject() == self._last)
        self._last = event.subject()
        value = redacted(line.value, self._redactor) if self._redactor else line.value
        return [self._stored(line.envelope, type(event), line.line.key, value)]

    def _gap(self, key: str, version: int) -> StoredRecord:
        envelope = blob_ended(key, version, STAGE)
        return self._stored(envelope, ScopeConsolidated, f"{key}@{version}", None)

    def _stored(self, envelope: Envelope, kind: type[Event], key: str, value: bytes | None) -> StoredRecord:
        topic, headers = self._topics.topic_of(kind), tuple(envelope.headers())
        return StoredRecord(topic, envelope.ordering_key.encode(), key.encode(), value, headers)

    @asynccontextmanager
    async def _publisher(self) -> AsyncGenerator[Publisher]:
        used = PartitionCounts(self.at.database, self.at.settings.names).used
        publisher = Publisher(lambda: new_producer(self.at.kafka), used)
        await publisher.start()
        try:
            yield publisher
        finally:
            await publisher.stop()


def _unless_in(elsewhere: Owned, line: Line | BadLine) -> Line | BadLine:
    if isinstance(line, RecordLine) and (type(line.event), line.event.subject()) in elsewhere:
        return BadLine(line.number, "its memory belongs to another scope here")
    return line


def redacted(value: bytes, redact: Redactor) -> bytes:
    """Return a record's value without the secrets of its texts; without any, the same bytes.

    A fact whose text had one loses its vector, which was made of the secret too: `eden reembed` makes a new one.
    """
    fields: dict[str, Any] = orjson.loads(value)
    text = fields.get("text")
    for part in (fields, fields.get("statement") or {}, fields.get("command") or {}):
        part |= {name: redact(part[name]) for name in ("text", "reason") if part.get(name)}
    fields |= {"pins": [redact(pin) for pin in fields["pins"]]} if fields.get("pins") else {}
    if fields == orjson.loads(value):
        return value
    if "hash" in fields and fields["text"] != text:
        fields |= {"hash": fact_hash(fields["text"]), "embedding": None}
    return orjson.dumps(fields)
