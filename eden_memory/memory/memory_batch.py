"""Memory records of a batch by scope, without what is forgotten, and the stored memory that they meet. Pure."""

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b, sha256
from typing import Any, Literal, Protocol

from eden_memory.forgotten import Marks, ids_of
from eden_memory.schemas.documents import (
    BufferedReflection,
    Consolidated,
    Fact,
    FactStatement,
    RecentFact,
    Reflection,
    Snapshot,
    StoredBlob,
)
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import (
    Event,
    FactChanged,
    FactCommanded,
    MemoryCommanded,
    ReflectionFormed,
    ScopeConsolidated,
    SessionClosed,
)
from eden_memory.schemas.provenance import SourceMessage, newest_said
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.stage import Delivery, Erase

END = " .!?。,;:"
"""Characters stripped from the end, in any number; NFKC has unified their full-width and joined forms."""


def normalised(text: str) -> str:
    """Normalise a text: NFKC, case folded, single spaces, no punctuation at the end; idempotent."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    joined = " ".join(folded.split())
    return joined.rstrip(END) or joined


def fact_hash(text: str) -> str:
    """Return the SHA-256 of the normalised text, as 64 hexadecimal digits."""
    return sha256(normalised(text).encode()).hexdigest()


def fact_id(origin: str, scope_key: str, number: int) -> str:
    """Return the id of the fact that the `number`-th statement of a formation or command may become: 32 digits."""
    return blake2b(f"{origin}\x00{scope_key}\x00{number}".encode(), digest_size=16).hexdigest()


REASON = "forgotten"
Memory = FactChanged | ReflectionFormed | SessionClosed | ScopeConsolidated


@dataclass(slots=True)
class ScopeBatch:
    """The records of one scope; the last record of a key counts."""

    key: str
    time: datetime
    """Of the newest record."""
    scope: Scope | None = None
    """None where nothing but tombstones came."""
    facts: dict[tuple[str, int], FactChanged] = field(default_factory=dict[tuple[str, int], FactChanged])
    reflections: dict[tuple[str, int], ReflectionFormed] = field(
        default_factory=dict[tuple[str, int], ReflectionFormed]
    )
    blobs: dict[int, ScopeConsolidated] = field(default_factory=dict[int, ScopeConsolidated])
    closed_at: datetime | None = None
    outcome: int = 0
    """The highest number of a decision."""
    gone_facts: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    dropped: dict[tuple[str, int], Delivery] = field(default_factory=dict[tuple[str, int], Delivery])
    """Versions above the first of facts that rest on something forgotten. One that is stored stays until its
    tombstone comes: what is left of the fact is stated anew from it, also by a repeat after a crash."""
    gone_reflections: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    gone_blobs: set[int] = field(default_factory=set[int])

    @property
    def reflection_ids(self) -> set[str]:
        """The reflections of which a version is added or removed."""
        return {name for name, _ in (*self.reflections, *self.gone_reflections)}

    @property
    def retired(self) -> bool:
        """Whether a reflection of the scope is retired."""
        return any(event.retired_at is not None for event in self.reflections.values())

    @property
    def size(self) -> int:
        """The approximate number of entities that it names."""
        return (
            len(self.facts) + len(self.reflections) + sum(len(blob.absorbed) for blob in self.blobs.values())
        )

    def add(self, event: Memory) -> None:
        """Add a record that remains."""
        self.scope = event.scope
        match event:
            case FactChanged():
                self.facts[event.fact_id, event.version] = event
                self.gone_facts.discard((event.fact_id, event.version))
                self.dropped.pop((event.fact_id, event.version), None)
                self.outcome = max(self.outcome, event.outcome)
            case ReflectionFormed():
                self.reflections[event.reflection_id, event.version] = event
                self.gone_reflections.discard((event.reflection_id, event.version))
            case ScopeConsolidated():
                self.blobs[event.version] = event
            case SessionClosed():
                self.closed_at = max(self.closed_at or event.closed_at, event.closed_at)

    def drop(self, event: Memory, delivery: Delivery) -> None:
        """Leave out a record that must not remain."""
        if isinstance(event, FactChanged) and event.version > 1:
            self.facts.pop((event.fact_id, event.version), None)
            self.dropped[event.fact_id, event.version] = delivery
        else:
            self.remove(event.NAME, event.key())

    def remove(self, name: str, key: str) -> None:
        """Apply a tombstone of an event `name` under a Kafka key; SessionClosed leaves nothing to remove."""
        entity, _, number = key.rpartition("@")
        version = int(number) if number.isdecimal() else 0
        match name:
            case FactChanged.NAME:
                self.facts.pop((entity, version), None)
                self.gone_facts.add((entity, version))
            case ReflectionFormed.NAME:
                named = (entity, version) if version else (key, 1)
                self.reflections.pop(named, None)
                self.gone_reflections.add(named)
            case ScopeConsolidated.NAME if version:
                self.blobs.pop(version, None)
                self.gone_blobs.add(version)
            case _:
                pass


@dataclass(slots=True)
class MemoryBatch:
    """All scopes of a batch, and the tombstones of records that must not remain."""

    scopes: dict[str, ScopeBatch] = field(default_factory=dict[str, ScopeBatch])
    first: dict[str, int] = field(default_factory=dict[str, int])
    """Where the first record of a scope is in the batch."""
    last: dict[str, Delivery] = field(default_factory=dict[str, Delivery])
    erased: list[Erase] = field(default_factory=list[Erase])
    left: list[tuple[Delivery, FactStatement]] = field(default_factory=list[tuple[Delivery, FactStatement]])
    """Statements of dropped versions that rest on nothing forgotten: each becomes a fact again."""

    def take(self, index: int, delivery: Delivery, marks: Marks) -> None:
        """Take the next record of the batch."""
        event, key = delivery.event, delivery.envelope.ordering_key
        batch = self.scopes.get(key)
        if batch is None:
            batch = self.scopes[key] = ScopeBatch(key, delivery.envelope.time)
            self.first[key] = index
        batch.time = max(batch.time, delivery.envelope.time)
        self.last[key] = delivery
        if not isinstance(event, Memory):
            batch.remove(delivery.envelope.name, delivery.key)
        elif is_forgotten(event, marks):
            batch.scope = event.scope
            batch.outcome = max(batch.outcome, event.outcome if isinstance(event, FactChanged) else 0)
            batch.drop(event, delivery)
            self.erased.append(_erase(event, delivery))
            if isinstance(event, FactChanged) and (said := left_of(event, marks)) is not None:
                self.left.append((delivery, said))
        else:
            batch.add(event)


def memory_batch(deliveries: Sequence[Delivery], marks: Marks) -> MemoryBatch:
    """Return the deliveries by scope, in their order."""
    batch = MemoryBatch()
    for index, delivery in enumerate(deliveries):
        batch.take(index, delivery, marks)
    return batch


def erased_since(before: MemoryBatch, after: MemoryBatch) -> list[Delivery]:
    """Return the records that are dropped now because more marks are known."""
    already = {id(erase.cause) for erase in before.erased}
    return [
        erase.cause for erase in after.erased if erase.cause is not None and id(erase.cause) not in already
    ]


def named_by(events: Iterable[Event | None]) -> Iterator[tuple[str, str]]:
    """Yield (kind, target) of everything whose forgetting concerns any of the records; pairs may repeat."""
    for event in events:
        if isinstance(event, Memory):
            yield from ids_of(event.scope, _sources(event))
            yield from _itself(event)


def is_forgotten(event: Memory, marks: Marks) -> bool:
    """Return whether a record itself is forgotten, or rests on nothing else."""
    if not marks:
        return False
    match event:
        case FactChanged():
            return marks.entity_gone("fact", event.fact_id, event.version) or _fact_reached(event, marks)
        case ReflectionFormed(propagated_from=source):
            return (
                marks.entity_gone("reflection", event.reflection_id, event.version)
                or (source is not None and marks.entity_gone("reflection", source.reflection_id, 1))
                or marks.reaches(event.scope, event.sources, event.formed_at)
            )
        case SessionClosed():
            return marks.session_gone(event.scope.session_id, event.closed_at)
        case ScopeConsolidated():
            return _blob_gone(event, marks)


def _fact_reached(event: FactChanged, marks: Marks) -> bool:
    return marks.reaches(event.scope, event.sources, max(event.formed_at, event.valid_from))


def left_of(event: FactChanged, marks: Marks) -> FactStatement | None:
    """Return the statement of a version that is dropped for what else its fact was merged from, if it stays."""
    said = statement_of(event)
    return said if said is not None and is_left(event, said, marks) else None


def is_left(dropped: FactChanged, said: FactStatement, marks: Marks) -> bool:
    """Return whether a statement of a dropped fact stays.

    It does not if the fact itself was to be forgotten, or is retired.
    """
    asked = marks.by_hand("fact", dropped.fact_id)
    goes = asked or dropped.retired_at is not None or not marks.any_gone(dropped.sources)
    return not goes and not marks.reaches(dropped.scope, said.sources, dropped.formed_at)


def statement_of(event: FactChanged) -> FactStatement | None:
    """Return the statement that a version takes in; None for commands, and for what it does not rest on."""
    if event.version == 1:
        return statement(1, event.text, event.sources, event.said_at)
    stated = event.statement
    if stated is None or not _places(stated.sources) <= _places(event.sources):
        return None
    asked_at = event.command.asked_at if event.command is not None else None
    return statement(event.version, stated.text, stated.sources, stated.said_at or asked_at)


def statement(
    version: int, text: str, sources: tuple[SourceMessage, ...], said_at: datetime | None
) -> FactStatement:
    """Return a statement of a fact, with its time if no source has one."""
    return FactStatement(
        version=version, text=text, sources=sources, said_at=None if newest_said(sources) else said_at
    )


def _places(sources: Iterable[SourceMessage]) -> set[tuple[str, str]]:
    return {(source.message_id, source.version) for source in sources}


def _blob_gone(event: ScopeConsolidated, marks: Marks) -> bool:
    """A blob is dropped with what it absorbed, and with the version that it was made from."""
    return (
        marks.entity_gone("blob", event.scope.key, event.version)
        or (event.based_on > 0 and marks.entity_gone("blob", event.scope.key, event.based_on))
        or any(marks.entity_gone("reflection", reflection_id, 1) for reflection_id in event.absorbed)
        or marks.scope_gone(event.scope, event.consolidated_at)
    )


def _itself(event: Memory) -> list[tuple[str, str]]:
    match event:
        case FactChanged():
            return [("fact", event.fact_id), ("fact", event.key())]
        case ReflectionFormed(propagated_from=source):
            made_from = [] if source is None else [("reflection", source.reflection_id)]
            return [("reflection", event.reflection_id), *made_from]
        case ScopeConsolidated():
            made_from = f"{event.scope.key}@{event.based_on}"
            blobs = [("blob", name) for name in (event.scope.key, event.key(), made_from)]
            return [*blobs, *(("reflection", reflection_id) for reflection_id in event.absorbed)]
        case SessionClosed():
            return []


def _sources(event: Memory) -> tuple[SourceMessage, ...]:
    return event.sources if isinstance(event, FactChanged | ReflectionFormed) else ()


def blob_ended(key: str, version: int, source: str) -> Envelope:
    """Return the attributes of a tombstone: a scope's blob version was forgotten."""
    return Envelope(
        id=f"forgotten/{key}@{version}",
        name=ScopeConsolidated.NAME,
        version=ScopeConsolidated.VERSION,
        source=source,
        time=datetime.fromtimestamp(0, UTC),
        subject=key,
        ordering_key=key,
        entity_version=str(version),
        scope=key,
        reason=REASON,
    )


def _erase(event: Memory, delivery: Delivery) -> Erase:
    version = None if isinstance(event, SessionClosed) else event.version
    return Erase(
        type(event),
        event.key(),
        event.ordering_key(),
        event.subject(),
        REASON,
        entity_version=None if version is None else str(version),
        scope=event.scope.key,
        cause=delivery,
    )


def commands_behind(erased: Iterable[Erase]) -> list[Erase]:
    """Return tombstones of the commands that led to dropped versions, and hold the same texts.

    Forgetting finds commands by the memory that is stored; a dropped version no longer is.
    """
    behind = (_command_behind(dropped.cause) for dropped in erased if dropped.cause is not None)
    return [command for command in behind if command is not None]


def _command_behind(delivery: Delivery) -> Erase | None:
    event = delivery.event
    if not isinstance(event, FactChanged | ReflectionFormed | ScopeConsolidated) or event.command is None:
        return None
    of = FactCommanded if isinstance(event, FactChanged) else MemoryCommanded
    name, scope = event.command.command_id, event.scope.key
    return Erase(of, name, scope, name, REASON, scope=scope, cause=delivery)


Part = Literal["facts", "reflections", "blob"]


@dataclass(slots=True)
class StoredScope:
    """Read after the snapshot: if the snapshot is unchanged at the write, all of this is unchanged, too."""

    snapshot: Snapshot | None = None
    facts: dict[str, Fact] = field(default_factory=dict[str, Fact])
    """Those that the batch names, and all not retired that share a text (hash) with one, before or after it."""
    reflections: dict[str, Reflection] = field(default_factory=dict[str, Reflection])
    """Those that the batch names, lists as absorbed, or frees by removing a blob."""
    blob: Consolidated | None = None
    """Read if the batch has or removes a blob."""
    versions: dict[int, StoredBlob] = field(default_factory=dict[int, StoredBlob])
    """Of the blob versions that the batch has or removes, those that are known; without their texts."""
    absorbing: tuple[StoredBlob, ...] = ()
    """Blob versions that list a reflection of the batch, or one that it frees; without their texts."""
    left: tuple[StoredBlob, ...] = ()
    """If the batch removes a version that is shown or in the history: the newest versions that stay."""
    highest: int = 0
    """The highest blob version ever given; read only where there is no snapshot."""
    other_facts: tuple[RecentFact, ...] = ()
    """The newest active facts beside `facts`, if one of the snapshot's list may leave it."""
    other_lasting: tuple[RecentFact, ...] = ()
    """The lasting facts beside `facts`, if the snapshot's list of them is full and one may leave it."""
    other_reflections: tuple[BufferedReflection, ...] = ()
    """The oldest buffered reflections beside `reflections`, if the snapshot's buffer is full."""

    @property
    def next_revision(self) -> int:
        """Of the commit that changes something."""
        return 1 if self.snapshot is None else self.snapshot.revision + 1


@dataclass(slots=True)
class ScopeWrite:
    """The documents to write of one scope, all or none, if its snapshot is still at `based_on`."""

    snapshot: Snapshot | None
    """None where nothing but numbers of forgotten blob versions is known of the scope."""
    based_on: int | None
    """The revision that was read; None: no snapshot yet."""
    facts: tuple[Fact, ...] = ()
    gone_facts: tuple[str, ...] = ()
    released: tuple[str, ...] = ()
    """Facts whose text another fact of this change takes over: their texts are freed first."""
    reflections: tuple[Reflection, ...] = ()
    gone_reflections: tuple[str, ...] = ()
    blob: Consolidated | None = None
    blob_gone: bool = False
    versions: tuple[StoredBlob, ...] = ()
    parts: tuple[Part, ...] = ()
    known: frozenset[str] = frozenset()
    """Ids of documents that existed when the scope was read."""


@dataclass(slots=True)
class Projected:
    """A batch applied to what is stored."""

    snapshot: Snapshot | None
    """The snapshot after the change, or the stored one if nothing changes."""
    change: ScopeWrite | None
    duplicates: tuple[Fact, ...] = ()
    """Facts kept out of search because an older one says the same."""


@dataclass(frozen=True, slots=True)
class AppliedScope:
    """The result of applying a scope's batch."""

    snapshot: Snapshot | None
    parts: tuple[Part, ...] = ()
    """The parts that changed; empty if the batch changed nothing."""
    duplicates: tuple[Fact, ...] = ()


def scope_fields(scope: Scope | None, snapshot: Snapshot | None = None) -> dict[str, Any]:
    """Return the fields that say to whom a document belongs, from a scope or from the scope's snapshot."""
    if scope is not None:
        return {
            "scope": scope.kind,
            "scope_key": scope.key,
            "agent_id": scope.agent_id,
            "group_id": scope.group_id,
            "user_id": scope.user_id,
        }
    assert snapshot is not None, "a blob or fact that is stored has a snapshot"
    return {
        name: getattr(snapshot, name) for name in ("scope", "scope_key", "agent_id", "group_id", "user_id")
    }


class MemoryStore(Protocol):
    """The memory collections; only atlas-writer writes them."""

    async def load(self, batches: Sequence[ScopeBatch]) -> Mapping[str, StoredScope]:
        """Return each scope's stored memory as far as its batch touches it; empty if a document cannot be read."""
        ...

    async def apply(
        self, batches: Sequence[ScopeBatch], stored: Mapping[str, StoredScope] | None = None
    ) -> Mapping[str, AppliedScope | Exception]:
        """Write each scope's records, all or none; return results by scope key, an error for those that failed.

        `stored`: what `load` found for these batches a moment ago.
        """
        ...
