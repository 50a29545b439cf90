"""Records to deliveries, and what a handler returned to records, byte for byte the same at every repeat."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b

from eden_memory.kafka.record import Record
from eden_memory.names import following
from eden_memory.schemas.envelope import Envelope, EnvelopeError
from eden_memory.schemas.events import Event
from eden_memory.schemas.registry import Registry, SchemaViolation
from eden_memory.stages.failure_decisions import Failure, Kind
from eden_memory.stages.lanes import Queued, Unit
from eden_memory.stages.outcome import StoredRecord
from eden_memory.stages.stage import Delivery, Emit, Emitted, Erase, Stage
from eden_memory.stages.stage_health import StageHealth

TopicOf = Callable[[type[Event]], str]
Decode = Callable[[str, int, bytes], Event]


def event_id(cause: str, stage: str, index: int, retry: int = 0) -> str:
    """The deterministic id of a stage's `index`-th event out of `cause`: 32 hexadecimal digits."""
    parts = f"{cause}\x00{stage}\x00{index}" + (f"\x00{retry}" if retry else "")
    return blake2b(parts.encode(), digest_size=16).hexdigest()


def delivery(record: Record, envelope: Envelope, decode: Decode, *, attempt: int, times: int) -> Delivery:
    """Return a record as the handler sees it; a SchemaViolation if its value is not what its type promises."""
    event = None if record.value is None else decode(envelope.name, envelope.version, record.value)
    key = (record.key or b"").decode(errors="replace")
    return Delivery(envelope, event, record.topic, key, record.partition, attempt, times)


@dataclass(frozen=True, slots=True)
class Encoder:
    """Turns what a stage's handler returned into records."""

    stage: str
    topic_of: TopicOf

    def records(
        self, outgoing: Sequence[Emitted], unit: Sequence[Delivery], retry: int = 0
    ) -> tuple[StoredRecord, ...]:
        """The records of a decision over `unit` (not empty), in order."""
        return tuple(self._record(event, index, unit[-1], retry) for index, event in enumerate(outgoing))

    def _record(self, outgoing: Emitted, index: int, last: Delivery, retry: int) -> StoredRecord:
        if isinstance(outgoing, Event):
            outgoing = Emit(outgoing)
        cause = outgoing.cause or last
        identity = event_id(cause.id, self.stage, index, retry)
        if isinstance(outgoing, Erase):
            return self._tombstone(outgoing, cause, identity)
        return record_of(
            outgoing.event,
            self.topic_of,
            identity=outgoing.identity or identity,
            source=self.stage,
            time=outgoing.time or cause.envelope.time,
            traceparent=outgoing.traceparent or following(cause.envelope),
            value=outgoing.value,
        )

    def _tombstone(self, erase: Erase, cause: Delivery, identity: str) -> StoredRecord:
        envelope = Envelope(
            id=erase.identity or identity,
            name=erase.of.NAME,
            version=erase.of.VERSION,
            source=self.stage,
            time=erase.time or cause.envelope.time,
            subject=erase.subject,
            ordering_key=erase.ordering_key,
            traceparent=following(cause.envelope),
            entity_version=erase.entity_version,
            scope=erase.scope,
            reason=erase.reason,
        )
        return _stored(self.topic_of(erase.of), envelope, erase.key, None)


def record_of(
    event: Event,
    topic_of: TopicOf,
    *,
    identity: str,
    source: str,
    time: datetime,
    traceparent: str | None,
    value: bytes | None = None,
) -> StoredRecord:
    """The record of an event; `value`: its bytes, where they are there already."""
    envelope = event.envelope(identity, source, time, traceparent)
    return _stored(topic_of(type(event)), envelope, event.key(), value or event.json_bytes())


def _stored(topic: str, envelope: Envelope, key: str, value: bytes | None) -> StoredRecord:
    ordering = envelope.ordering_key.encode()
    return StoredRecord(topic, ordering, key.encode(), value, tuple(envelope.headers()))


def kind_of(outgoing: Emitted) -> str:
    """The name of the event that is published or erased."""
    if isinstance(outgoing, Emit):
        return outgoing.event.NAME
    return outgoing.of.NAME if isinstance(outgoing, Erase) else outgoing.NAME


@dataclass(slots=True)
class Read:
    """One record of a unit; `member` is what the ledger knows it by."""

    item: Queued
    delivery: Delivery | None
    """None: nothing for the stage to read, or a repeat of a record before it in the unit."""
    member: str


def wanted(read: Sequence[Read]) -> list[Delivery]:
    """The deliveries of a unit that the handler is given."""
    return [record.delivery for record in read if record.delivery is not None]


def members(read: Sequence[Read]) -> list[str]:
    """The names of a unit's records in the ledger."""
    return [record.member for record in read if record.delivery is not None]


class Reader:
    """Decodes what one stage reads: its types of events and, where it decides nothing for ever, their tombstones."""

    def __init__(self, stage: Stage, registry: Registry, health: StageHealth) -> None:
        self._reads = {event.NAME for event in stage.reads}
        self._reads_tombstones = not stage.decides
        self._registry = registry
        self._health = health

    def unit(self, unit: Unit) -> list[Read] | Failure:
        """The unit up to its first unreadable record; a Failure if that was the first, kept alone."""
        read: list[Read] = []
        seen: set[str] = set()
        for index, item in enumerate(unit.items):
            try:
                read.append(self._read(item, seen))
            except (EnvelopeError, SchemaViolation) as error:
                unit.keep(max(index, 1))
                return read or Failure(Kind.PERMANENT, str(error), error)
        return read

    def _read(self, item: Queued, seen: set[str]) -> Read:
        if item.epoch != self._health.epoch:
            if self._health.was_outage(item.epoch):
                item.attempts = min(item.attempts, item.settled + 1)
            item.epoch, item.settled = self._health.epoch, item.attempts
        kept, item.given = item.given, None
        envelope = kept.envelope if kept is not None else Envelope.of_headers(item.record.headers)
        member = f"{envelope.id}#{item.retry}" if item.retry else envelope.id
        unknown = envelope.name not in self._reads and envelope.name in self._registry.events
        ended = item.record.value is None and not self._reads_tombstones
        if unknown or ended or member in seen:
            return Read(item, None, member)
        seen.add(member)
        if kept is None:
            attempt = item.attempts + 1
            kept = delivery(item.record, envelope, self._registry.decode, attempt=attempt, times=item.times)
        return Read(item, kept, member)
