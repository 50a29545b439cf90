"""Which records of an export are imported: not what is forgotten here; what is held otherwise becomes items. Pure.

Marks name messages, sessions and users that memory rests on, and memories that are forgotten themselves. The first
blob version that absorbed something forgotten is left out, and so are all later ones. A fact that only forgotten
facts contradicted is active again.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from eden_memory.access.visible import rests_on_users
from eden_memory.directory.participants import given_to_all
from eden_memory.files.export_file import RecordLine, read_lines
from eden_memory.files.import_items import Entry, ImportedAs, ImportedItem, SkippedItem, imported_or_skipped
from eden_memory.forgotten import Marks
from eden_memory.memory.memory_batch import Memory, is_forgotten
from eden_memory.mongo.ids import decode_id
from eden_memory.schemas.events import FactChanged, ReflectionFormed, ScopeConsolidated
from eden_memory.schemas.provenance import SourceMessage


@dataclass(slots=True)
class ForgottenHere:
    """Learns from the records in the order of the file, then judges each of them."""

    facts: dict[str, str | None] = field(default_factory=dict[str, str | None])
    """Forgotten facts, each with the one that had contradicted it."""
    reflections: set[str] = field(default_factory=set[str])
    withdrawn: dict[str, int] = field(default_factory=dict[str, int])
    """By scope key, the lowest blob version that holds something forgotten."""
    _newest: str = ""
    """The fact whose newest version came last."""

    def learn(self, event: Memory, marks: Marks) -> None:
        """Take in a record; of a fact only its newest version, which comes first, says whether it is forgotten."""
        gone = is_forgotten(event, marks)
        match event:
            case FactChanged():
                if gone and event.fact_id != self._newest:
                    self.facts[event.fact_id] = event.replaced_by
                self._newest = event.fact_id
            case ReflectionFormed():
                if gone:
                    self.reflections.add(event.reflection_id)
            case ScopeConsolidated():
                if gone or not self.reflections.isdisjoint(event.absorbed):
                    lowest = self.withdrawn.get(event.scope.key, event.version)
                    self.withdrawn[event.scope.key] = min(lowest, event.version)
            case _:
                pass

    def withdraws(self, event: Memory) -> bool:
        """Return whether it is a blob version of which only the number is kept."""
        lowest = self.withdrawn.get(event.scope.key) if isinstance(event, ScopeConsolidated) else None
        return lowest is not None and isinstance(event, ScopeConsolidated) and event.version >= lowest

    def drops(self, event: Memory, marks: Marks) -> bool:
        """Return whether a record is left out."""
        match event:
            case FactChanged():
                known = event.fact_id in self.facts or self._holds_again(event)
            case ReflectionFormed():
                known = event.reflection_id in self.reflections
            case _:
                known = False
        return known or is_forgotten(event, marks)

    def _holds_again(self, event: FactChanged) -> bool:
        """Return whether it retires a fact that only forgotten facts contradict."""
        if event.retired_because != "contradicted":
            return False
        by, seen = event.replaced_by, set[str]()
        while by in self.facts and by not in seen:
            seen.add(by)
            by = self.facts[by]
        return bool(seen) and (by is None or by in seen)


@dataclass(slots=True)
class JudgedElsewhere:
    """Learns from the records in the order of the file, after `forgotten` has learned from them."""

    forgotten: ForgottenHere
    _absorbed: set[str] = field(default_factory=set[str])
    """By a blob that is published as it was, or the origins of propagated reflections that are."""
    _left_out: set[str] = field(default_factory=set[str])
    """Origins of propagated reflections that their scope does not take."""
    _newest: str = ""
    """The reflection whose newest version came last."""

    @property
    def ids(self) -> list[str]:
        """The reflections, in the order of their ids."""
        return sorted(self._absorbed - self._left_out)

    def learn(self, event: Memory, *, held: bool) -> None:
        """Take in a record; `held`: its scope holds something else here, and takes no records."""
        if isinstance(event, ScopeConsolidated) and not held and not self.forgotten.withdraws(event):
            self._absorbed.update(event.absorbed)
        if not isinstance(event, ReflectionFormed):
            return
        if event.propagated_from is not None and not held:
            self._absorbed.add(event.propagated_from.reflection_id)
        elif event.propagated_from is not None and event.reflection_id != self._newest:
            ended = event.retired_at is not None
            (self._absorbed if ended else self._left_out).add(event.propagated_from.reflection_id)
        self._newest = event.reflection_id


OF_USERS = "it holds what users said; its reflections are consolidated here as far as they are imported"

PROPAGATED = "it was propagated from other memory, and a request cannot say from which"


@dataclass(slots=True)
class HeldMemory:
    """Learns from the records in the order of the file; then reads the items out of it."""

    forgotten: ForgottenHere
    scopes: set[str] = field(default_factory=set[str])
    """Those that hold something else here."""
    known: set[str] = field(default_factory=set[str])
    """Facts and reflections of these scopes that are here under the same id: they are no items."""
    with_blob: set[str] = field(default_factory=set[str])
    """Those of these scopes that keep the blob they have here: what another one absorbed waits for theirs."""
    absorbed: set[str] = field(default_factory=set[str])
    """Reflections that a blob of these scopes holds, and that come with it."""
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
            self.absorbed.update(event.absorbed if key not in self.with_blob else ())
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
        if event.subject() in self.known:
            return False
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
            return item.with_fields(private=event.private or None, sources=event.sources, **of)
        case ReflectionFormed():
            item = to.reflection(where, event.reflection_id, event.text, event.scope, event.said_at)
            session = {} if event.session_id is None else {"session_id": decode_id(event.session_id)}
            return item.with_fields(private=event.private, sources=event.sources, **session)
        case ScopeConsolidated():
            return to.blob(where, event.key(), event.text, event.scope, event.said_at)
        case _:
            raise TypeError(event.NAME)


def _session(sources: Sequence[SourceMessage]) -> str:
    """Return the session of a fact: one whose users private sharing protects, if there is any."""
    sessions = [source.session_id for source in sources]
    return next((session for session in sessions if not given_to_all(session)), sessions[-1])
