"""Memory of an export whose scope holds something else already: newest versions, as items like any other system's."""

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from eden_memory.access.sharing import rests_on_users
from eden_memory.directory.own_sessions import given_to_all
from eden_memory.exports.export_file import RecordLine, read_lines
from eden_memory.exports.forgotten_here import ForgottenHere
from eden_memory.forgotten import Marks
from eden_memory.imports.import_items import Entry, ImportedAs, ImportedItem, SkippedItem, imported_or_skipped
from eden_memory.memory.memory_batch import Memory
from eden_memory.mongo.bson_ids import decode_id
from eden_memory.schemas.events import FactChanged, ReflectionFormed, ScopeConsolidated
from eden_memory.schemas.provenance import SourceMessage

OF_USERS = "it holds what users said; its reflections are consolidated here as far as they are imported"
PROPAGATED = "it was propagated from other memory, and a request cannot say from which"


@dataclass(slots=True)
class HeldMemory:
    """Learns from the records in the order of the file; then reads the items out of it."""

    forgotten: ForgottenHere
    scopes: set[str] = field(default_factory=set[str])
    """Those that hold something else here."""
    absorbed: set[str] = field(default_factory=set[str])
    """Reflections that a blob of these scopes holds."""
    blobs: dict[str, int] = field(default_factory=dict[str, int])
    """By scope, its newest blob version that can be imported."""
    of_users: set[str] = field(default_factory=set[str])
    """Reflections resting on what users said to whom the scope does not belong."""
    blobs_of_users: dict[str, int] = field(default_factory=dict[str, int])
    """By scope, the lowest blob version that absorbed some of them: as a command, neither would private sharing hide
    it nor would it go when one of the users is forgotten."""

    def learn(self, event: Memory) -> None:
        """Take in a record, after `forgotten` has learned from it."""
        key = event.scope.key
        if key not in self.scopes:
            return
        if isinstance(event, ReflectionFormed) and _is_of_others(event):
            self.of_users.add(event.reflection_id)
        if not isinstance(event, ScopeConsolidated) or self.forgotten.withdraws(event):
            return
        if not self.of_users.isdisjoint(event.absorbed):
            self.blobs_of_users.setdefault(key, event.version)
        if key not in self.blobs_of_users:
            self.absorbed.update(event.absorbed)
            self.blobs[key] = event.version

    async def items(self, path: str, to: ImportedAs) -> AsyncIterator[Entry]:
        """Yield active facts, waiting reflections and the newest blobs."""
        for record in self._newest(Path(path)):
            where = f"line {record.number}"
            if isinstance(record.event, FactChanged) and record.event.scope.kind == "session":
                yield SkippedItem(where, "a session holds no facts", bad=True)
            elif self._is_of_users(record.event):
                yield SkippedItem(where, OF_USERS)
            elif isinstance(record.event, ReflectionFormed) and record.event.propagated_from is not None:
                yield SkippedItem(where, PROPAGATED)
            else:
                yield imported_or_skipped(where, partial(_item, where, record.event, to))

    def _newest(self, path: Path) -> Iterator[RecordLine]:
        """Yield the newest version of each memory, where it is neither retired nor absorbed."""
        last = ""
        for record in read_lines(path):
            if not isinstance(record, RecordLine) or record.event.scope.key not in self.scopes:
                continue
            event = record.event
            if isinstance(event, ScopeConsolidated):
                if event.version == self.blobs.get(event.scope.key) or self._is_of_users(event):
                    yield record
                continue
            if event.subject() == last or self.forgotten.drops(event, Marks()):
                continue
            last = event.subject()
            if self._holds(event):
                yield record

    def _is_of_users(self, event: Memory) -> bool:
        """Return whether it is the blob version from which on a scope's blobs are left out."""
        return (
            isinstance(event, ScopeConsolidated) and self.blobs_of_users.get(event.scope.key) == event.version
        )

    def _holds(self, event: Memory) -> bool:
        if isinstance(event, ReflectionFormed):
            return event.retired_at is None and event.reflection_id not in self.absorbed
        return isinstance(event, FactChanged) and event.retired_at is None


def _is_of_others(event: ReflectionFormed) -> bool:
    """Return whether it rests on what users said to whom its scope does not belong, or private sharing hides it."""
    authors = {source.user_id for source in event.sources} - {None, event.scope.belongs_to}
    return bool(authors) or rests_on_users(event.scope.key, map(dict, event.sources))


def _item(where: str, event: Memory, to: ImportedAs) -> ImportedItem:
    """Return a memory as an item; it rests on the same messages, so that sharing and forgetting treat it alike."""
    match event:
        case FactChanged():
            item = to.fact(where, event.fact_id, event.text, event.scope, event.said_at)
            of = {"session_id": decode_id(_session(event.sources))} if event.sources else {}
            return _with(item, private=event.private or None, sources=event.sources, **of)
        case ReflectionFormed():
            item = to.reflection(where, event.reflection_id, event.text, event.scope, event.said_at)
            session = {} if event.session_id is None else {"session_id": decode_id(event.session_id)}
            return _with(item, private=event.private, sources=event.sources, **session)
        case ScopeConsolidated():
            return to.blob(where, event.key(), event.text, event.scope, event.said_at)
        case _:
            raise TypeError(event.NAME)


def _session(sources: Sequence[SourceMessage]) -> str:
    """Return the session of a fact: one whose users private sharing protects, if there is any."""
    sessions = [source.session_id for source in sources]
    return next((session for session in sessions if not given_to_all(session)), sessions[-1])


def _with(item: ImportedItem, **fields: Any) -> ImportedItem:
    return replace(item, request=item.request.model_copy(update=fields))
