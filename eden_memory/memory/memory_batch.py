"""Memory records of a batch by scope, without what is forgotten. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from eden_memory.forgotten import Marks, ids_of
from eden_memory.schemas.documents import FactStatement
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
