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
        self, outgoing: Sequence[Outgoing], unit: Sequence[Delivery], retry: int = 0
    ) -> tuple[StoredRecord, ...]:
        """The records of a decision over `unit` (not empty), in order."""
        return tuple(self._record(event, index, unit[-1], retry) for index, event in enumerate(outgoing))

    def _record(self, outgoing: Outgoing, index: int, last: Delivery, retry: int) -> StoredRecord:
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


def kind_of(outgoing: Outgoing) -> str:
    """The name of the event that is published or erased."""
    if isinstance(outgoing, Emit):
        return outgoing.event.NAME
    return outgoing.of.NAME if isinstance(outgoing, Erase) else outgoing.NAME
