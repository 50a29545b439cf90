"""memory.facts, memory.reflections, memory.consolidations → a file: every version that is kept, once.

The topics are read up to their present ends into a temporary file: of each key the last record counts, as after a
compaction, so nothing that has a tombstone is exported. What a mark of forgetting covers is left out, too.
"""

import asyncio
import re
import sqlite3
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from pymongo import ReadPreference
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from eden_memory.errors import NotFound
from eden_memory.files.export_file import ExportWriter, Selection, without_data, writing
from eden_memory.forgetting.mark_store import MongoBatchMarks
from eden_memory.formation.propagation_rules import judged
from eden_memory.kafka.record import Record
from eden_memory.kafka.topic_reading import reading
from eden_memory.memory.memory_batch import Memory, is_forgotten, named_by
from eden_memory.mongo.transactions import shared_writes
from eden_memory.names import Names
from eden_memory.replay.installation import Installation
from eden_memory.replay.namespaces.namespace_store import WRITER
from eden_memory.schemas.documents import Fact, Reflection, Snapshot, StoredBlob
from eden_memory.schemas.envelope import STORE_FORMAT, Envelope, EnvelopeError
from eden_memory.schemas.events import (
    REGISTRY,
    FactChanged,
    ReflectionFormed,
    ScopeConsolidated,
    SessionClosed,
)
from eden_memory.schemas.exported import ExportHeader
from eden_memory.schemas.registry import SchemaViolation
from eden_memory.stages.outcome import Reread, StageOutcome
from eden_memory.stages.outcome_store import MongoLedger

TOGETHER = 1_000

ORDER = {
    kind.NAME: n for n, kind in enumerate((ReflectionFormed, ScopeConsolidated, SessionClosed, FactChanged))
}
"""Order of a scope's records: a blob follows the reflections that it absorbed."""

TABLE = """
PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -16000; PRAGMA temp_store = FILE;
CREATE TABLE records (topic TEXT, key TEXT, scope TEXT, kind INT, entity TEXT, place INT, version INT, head BLOB,
    value BLOB, PRIMARY KEY (topic, key)) WITHOUT ROWID;
"""

SORTED = "SELECT kind, version, head, value FROM records ORDER BY scope, kind, entity, place"

Progress = Callable[[str, int, int], None]
"""Called with the current step, and how much of how much is done."""


@dataclass(slots=True)
class ExportCounts:
    """The figures of an export."""

    records: int = 0
    scopes: set[str] = field(default_factory=set[str])
    forgotten: int = 0
    """Records that were left out because a mark of forgetting covers them."""
    unreadable: list[str] = field(default_factory=list[str])
    """Records that this version cannot read: their places and the reasons."""


async def export_memory(
    at: Installation, selection: Selection, path: Path, now: datetime, on_progress: Progress
) -> ExportCounts:
    """Write the live memory to a file; NotFound if the selection is empty, Conflict if the file exists."""
    header = ExportHeader(
        store_format=STORE_FORMAT,
        export_id=uuid4().hex,
        exported_at=now,
        program=version("eden-memory"),
        agent_id=selection.agent,
        user_id=selection.user,
    )
    with writing(path) as writer, closing(_KeptRecords()) as kept:
        exported = ExportCounts()
        await _gather(at, kept, exported, on_progress)
        writer.header(header)
        async with aclosing(_remembered(at, kept, selection, exported, on_progress)) as batches:
            async for batch in batches:
                _write(batch, writer, exported)
        if not exported.records:
            raise NotFound(
                "there is no memory to export", "Are the ids right, and typed where they are not strings?"
            )
        for scope, number in await forgotten_blobs(at.database, at.settings.names):
            if scope in exported.scopes or selection == Selection():
                writer.gap(scope, number)
        writer.end()
    return exported


class _Kept(NamedTuple):
    """The last record of a key."""

    event: Memory
    head: bytes
    value: bytes


class _KeptRecords:
    """The last record of every key, in an unnamed temporary file that disappears with the process."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.executescript(TABLE)

    def close(self) -> None:
        """Remove the file."""
        self._database.close()

    def take(self, records: Sequence[Record]) -> Iterator[str]:
        """Take in records in the order of their offsets; yields why some of them cannot be read."""
        self._database.execute("BEGIN")
        for record in records:
            try:
                self._take(record)
            except (EnvelopeError, KeyError):
                yield f"{_place(record)}: not a record of memory"
        self._database.execute("COMMIT")

    def _take(self, record: Record) -> None:
        key = (record.key or b"").decode(errors="replace")
        if record.value is None:
            self._database.execute("DELETE FROM records WHERE topic = ? AND key = ?", (record.topic, key))
            return
        about = Envelope.of_headers(record.headers)
        kind = ORDER[about.name]
        entity, _, number = key.rpartition("@")
        place = int(number) if entity and number.isdecimal() else 1
        if about.name != ScopeConsolidated.NAME:
            place = -place
        row = (record.topic, key, about.ordering_key, kind, entity or key, place, about.version)
        values = (*row, without_data(about, key), record.value)
        self._database.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)

    def count(self) -> int:
        """Return how many there are."""
        return self._database.execute("SELECT count(*) FROM records").fetchone()[0]

    def rows(self) -> Iterator[tuple[str, int, bytes, bytes]]:
        """Yield the event's name and version, the line up to its data, and the data; scope by scope."""
        names = list(ORDER)
        for kind, number, head, value in self._database.execute(SORTED):
            yield names[kind], number, head, value


async def _gather(
    at: Installation, kept: _KeptRecords, exported: ExportCounts, on_progress: Progress
) -> None:
    topics, passed = at.topics(at.settings.placement).read_by(WRITER), 0
    async with reading(at.kafka, topics) as reader:
        whole = sum(reader.ends[tp] - reader.begins[tp] for tp in reader.ends)
        async for batch in reader.batches():
            exported.unreadable += kept.take(batch)
            passed += len(batch)
            on_progress("reading", passed, whole)


async def _remembered(
    at: Installation, kept: _KeptRecords, selection: Selection, exported: ExportCounts, on_progress: Progress
) -> AsyncGenerator[list[_Kept]]:
    """Yield the selected records, without those that are forgotten."""
    marks, whole, passed = MongoBatchMarks(at.database, at.settings.names), kept.count(), 0
    left_rows = kept.rows()
    while rows := list(islice(left_rows, TOGETHER)):
        read = [_decoded(*row, exported) for row in rows]
        found = [record for record in read if record is not None and selection.takes(record.event.scope)]
        known = await marks.among(named_by(record.event for record in found))
        left = [record for record in found if not is_forgotten(record.event, known)]
        exported.forgotten += len(found) - len(left)
        yield left
        passed += len(rows)
        on_progress("writing", passed, whole)


def _decoded(name: str, number: int, head: bytes, value: bytes, exported: ExportCounts) -> _Kept | None:
    try:
        event = REGISTRY.decode(name, number, value)
    except SchemaViolation as reason:
        exported.unreadable.append(str(reason))
        return None
    assert isinstance(event, Memory)
    return _Kept(event, head, value)


def _write(batch: Sequence[_Kept], writer: ExportWriter, exported: ExportCounts) -> None:
    for record in batch:
        writer.record(record.head, record.value)
        exported.scopes.add(record.event.scope.key)
    exported.records = writer.records


def _place(record: Record) -> str:
    return f"{record.topic}/{record.partition}@{record.offset}"


Database = AsyncDatabase[dict[str, Any]]

Owned = set[tuple[type[Memory], str]]

STAGE = "import"
"""The name in the ledger; no stage has it."""

AT_ONCE = 500

ABANDONED = timedelta(hours=1)
"""After so long without a step, an import counts as given up: a step publishes 1,000 lines."""


async def forgotten_blobs(database: Database, names: Names) -> list[tuple[str, int]]:
    """Return scope key and number of every blob version that was forgotten, in order."""
    blobs = database[names[StoredBlob.COLLECTION]].find({"gone": True}, {"scope_key": 1, "version": 1})
    return sorted([(row["scope_key"], row["version"]) async for row in blobs])


async def owned_elsewhere(
    database: Database, names: Names, owners: Mapping[tuple[type[Memory], str], str]
) -> Owned:
    """Return those of the facts and reflections that belong to another scope here than the given one."""
    found: Owned = set()
    for kind, document in ((FactChanged, Fact), (ReflectionFormed, Reflection)):
        ids = [name for asked, name in owners if asked is kind]
        rows = database[names[document.COLLECTION]].find({"_id": {"$in": ids}}, {"scope_key": 1})
        found |= {(kind, row["_id"]) async for row in rows if row["scope_key"] != owners[kind, row["_id"]]}
    return found


class ScopeClaims:
    """The scopes that an export file may fill, each claimed in the ledger before its first record is published.

    A claim takes the numbers of the file's blob versions, as a decision does: consolidation waits until the writer
    has them all, and the claim fails if consolidation has used one of the numbers. Claims are kept, so that a
    repeated import of the file recognises its scopes.
    """

    def __init__(self, database: Database, names: Names, export_id: str) -> None:
        self._ledger, self._export = MongoLedger(database, names), export_id
        majority = ReadConcern("majority")
        self._outcomes = database.get_collection(
            names["outcomes"], write_concern=WriteConcern("majority", j=True), read_concern=majority
        )
        self._writes = shared_writes(self._outcomes)
        self._snapshots, self._blobs = (
            database.get_collection(
                names[kind.COLLECTION],
                read_preference=ReadPreference.PRIMARY,
                read_concern=ReadConcern("majority"),
            )
            for kind in (Snapshot, StoredBlob)
        )

    async def held(self, keys: Collection[str]) -> set[str]:
        """Return the scopes that hold memory, or once did, that is not from this file."""
        mine = await self._ledger.decided(STAGE, [self._member(key) for key in keys])
        others = [key for key in keys if self._member(key) not in mine]
        known: list[str] = await self._snapshots.distinct("_id", {"_id": {"$in": others}})
        return {*known, *await self._blobs.distinct("scope_key", {"scope_key": {"$in": others}})}

    async def claim(self, highest: Mapping[str, int]) -> set[str]:
        """Claim scopes, each with its highest blob version (0: none); return those that the file may fill."""
        left, mine = iter(highest), set[str]()
        while some := list(islice(left, AT_ONCE)):
            free = set(some) - await self.held(some)
            claims = await asyncio.gather(*(self._claimed(key, highest[key]) for key in free))
            mine |= {key for key, claimed in zip(free, claims, strict=True) if claimed}
        return mine

    async def _claimed(self, key: str, highest: int) -> bool:
        writes = (f"blob:{key}@{number}" for number in range(1, highest + 1))
        try:
            await self._ledger.store(self._outcome(key, writes))
        except Reread:
            return False
        return True

    async def release(self, keys: Collection[str], now: datetime) -> bool:
        """Release scopes that another import claimed and never filled; return whether one that may run has some.

        Its file may be lost, or its source may have changed since. After `ABANDONED` memory holds all it published.
        """
        left, runs = iter(keys), False
        while some := list(islice(left, AT_ONCE)):
            numbers = {"$in": [f"blob:{key}@1" for key in some]}
            claims = await self._outcomes.find({"stage": STAGE, "writes": numbers}, {"_id": 1}).to_list()
            for other in {row["_id"].split("/")[1] for row in claims}:
                its = {"_id": {"$regex": f"^{STAGE}/{re.escape(other)}/"}}
                if await self._outcomes.find_one({**its, "at": {"$gt": now - ABANDONED}}, {"_id": 1}):
                    runs = True
                else:
                    await self._outcomes.delete_many({**its, "writes": numbers})
        return runs

    async def mark_judged(self, reflection_ids: Sequence[str]) -> None:
        """Record that propagation has judged reflections; Reread if it is judging one of them right now."""
        for start in range(0, len(reflection_ids), AT_ONCE):
            writes = [judged(name) for name in reflection_ids[start : start + AT_ONCE]]
            known = await self._writes.get(writes)
            if new := [write for write in writes if write not in known]:
                name = blake2b("\x00".join(new).encode(), digest_size=16).hexdigest()
                await self._ledger.store(self._outcome(f"judged/{name}", new))

    async def published(self, number: int) -> bool:
        """Return whether everything up to a line of the file was published before."""
        return bool(await self._ledger.decided(STAGE, [self._member(str(number))]))

    async def note_published(self, number: int) -> None:
        """Note that everything up to a line of the file is published."""
        await self._ledger.store(self._outcome(str(number)))

    def _member(self, name: str) -> str:
        return f"{self._export}/{name}"

    def _outcome(self, name: str, writes: Iterable[str] = ()) -> StageOutcome:
        return StageOutcome(
            key=f"{STAGE}/{self._member(name)}",
            stage=STAGE,
            members=(self._member(name),),
            writes=tuple(writes),
            records=(),
            topic=ScopeConsolidated.NAME,
            partition=0,
            offset=0,
            decided_at=datetime.now(UTC),
        )
