"""Records to deliveries, and what a handler returned to records, byte for byte the same at every repeat."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b

from eden_memory.kafka.record import Record
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import Event
from eden_memory.stages.outcome import StoredRecord
from eden_memory.stages.stage import Delivery, Emit, Erase, Outgoing
from eden_memory.tracing import following

TopicOf = Callable[[type[Event]], str]
Decode = Callable[[str, int, bytes], Event]


def event_id(cause: str, stage: str, index: int, retry: int = 0) -> str:
    """The deterministic id of a stage's `index`-th event out of `cause`: 32 hexadecimal digits."""
    parts = f"{cause}\x00{stage}\x00{index}" + (f"\x00{retry}" if retry else "")
    return blake2b(parts.encode(), digest_size=16).hexdigest()


def delivery(record: Record, envelope: Envelope, decode: Decode, *, attempt: int, times: int) -> Delivery:
    """What the handler sees of a record; a SchemaViolation if its value is not what its type promises."""
    event = None if record.value is None else decode(envelope.name, envelope.version, record.value)
    key = (record.key or b"").decode(errors="replace")
    return Delivery(envelope, event, record.topic, key, record.partition, attempt, times)


@dataclass(frozen=True, slots=True)
class Encoder:
    """Turns what a stage's handler returned into records."""

    stage: str
    topic_of: TopicOf

    def records(
        self, outgoing: Sequence[Outgoing], unit: Sequence[Delivery], retry: int = 0
    ) -> tuple[StoredRecord, ...]:
        """The records of a decision over `unit` (not empty), in order."""
        return tuple(self._record(one, index, unit[-1], retry) for index, one in enumerate(outgoing))

    def _record(self, one: Outgoing, index: int, last: Delivery, retry: int) -> StoredRecord:
        if isinstance(one, Event):
            one = Emit(one)
        cause = one.cause or last
        identity = event_id(cause.id, self.stage, index, retry)
        if isinstance(one, Erase):
            return self._tombstone(one, cause, identity)
        return record_of(
            one.event,
            self.topic_of,
            identity=one.identity or identity,
            source=self.stage,
            time=one.time or cause.envelope.time,
            traceparent=one.traceparent or following(cause.envelope),
            value=one.value,
        )

    def _tombstone(self, one: Erase, cause: Delivery, identity: str) -> StoredRecord:
        envelope = Envelope(
            id=one.identity or identity,
            name=one.of.NAME,
            version=one.of.VERSION,
            source=self.stage,
            time=one.time or cause.envelope.time,
            subject=one.subject,
            ordering_key=one.ordering_key,
            traceparent=following(cause.envelope),
            entity_version=one.entity_version,
            scope=one.scope,
            reason=one.reason,
        )
        return _stored(self.topic_of(one.of), envelope, one.key, None)


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


def kind_of(one: Outgoing) -> str:
    """The name of the event that is published or erased."""
    if isinstance(one, Emit):
        return one.event.NAME
    return one.of.NAME if isinstance(one, Erase) else one.NAME
