"""Read chat.messages, and match its records to the application's writes: arrived or missing, order, delay."""

import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any, Literal

from aiokafka import AIOKafkaConsumer, ConsumerRecord

from eden_memory.kafka.connection import client_kwargs, start
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import MessageRecorded, Watermark, decode
from eden_memory.schemas.ids import split
from eden_memory.settings import KafkaSettings

Kind = Literal["message", "edit", "delete"]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A record of chat.messages as the reader met it; without text it is a tombstone."""

    message: str
    session: str
    author: str
    text: str | None
    partition: int
    offset: int
    at: float
    """Seconds since the epoch, when it was read."""


@dataclass(slots=True)
class ApplicationWrite:
    """One write of the application; without text it is a deletion."""

    kind: Kind
    message: str
    session: str
    text: str | None
    at: float
    delay: float | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """The demo's outcome; delays in seconds."""

    written: Counter[Kind]
    seen: Counter[Kind]
    missing: list[str]
    out_of_order: list[str]
    """Sessions whose messages did not arrive in the order in which they were written."""
    p50: float
    p99: float

    @property
    def complete(self) -> bool:
        """Return whether nothing is missing and every session is in order."""
        return not self.missing and not self.out_of_order


@dataclass(slots=True)
class DeliveryLog:
    """Follows every write until a record that says the same has been read."""

    writes: dict[str, list[ApplicationWrite]] = field(default_factory=dict[str, list[ApplicationWrite]])
    order: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    arrivals: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Message ids by session, in the order of their first arrival."""

    def wrote(self, write: ApplicationWrite) -> None:
        """Note a write before the application makes it."""
        self.writes.setdefault(write.message, []).append(write)
        if write.kind == "message":
            self.order.setdefault(write.session, []).append(write.message)

    def arrived(self, arrival: Arrival) -> ApplicationWrite | None:
        """Return the write that this record shows for the first time."""
        seen = self.arrivals.setdefault(arrival.session, [])
        if arrival.text is not None and arrival.message not in seen:
            seen.append(arrival.message)
        for write in self.writes.get(arrival.message, []):
            if write.delay is None and write.text == arrival.text:
                write.delay = max(0.0, arrival.at - write.at)
                return write
        return None

    def missing(self) -> list[str]:
        """Return the messages whose newest state has not been read; empty texts do not count."""
        newest = [writes[-1] for writes in self.writes.values()]
        return [write.message for write in newest if write.delay is None and write.text != ""]

    def summary(self) -> Summary:
        """Return the counts, delays and losses so far."""
        every = [write for writes in self.writes.values() for write in writes]
        delays = [write.delay for write in every if write.delay is not None]
        return Summary(
            written=Counter(write.kind for write in every),
            seen=Counter(write.kind for write in every if self._shown(write)),
            missing=self.missing(),
            out_of_order=[name for name in self.order if not self._in_order(name)],
            p50=median(delays) if delays else 0.0,
            p99=quantiles(delays, n=100)[98] if len(delays) > 1 else sum(delays),
        )

    def _shown(self, write: ApplicationWrite) -> bool:
        """Return whether a write was read, or a later write of the same message."""
        later = self.writes[write.message]
        return any(written.delay is not None for written in later[later.index(write) :])

    def _in_order(self, session: str) -> bool:
        """Return the delays, without messages that were empty until an edit."""
        late = {message for message, writes in self.writes.items() if writes[0].text == ""}
        came = [message for message in self.arrivals.get(session, []) if message not in late]
        there = set(came)
        return came == [message for message in self.order[session] if message in there]


Record = ConsumerRecord[bytes, bytes]


class Arrivals:
    """Reads from the topic's end as it is when the block is entered."""

    def __init__(self, kafka: KafkaSettings, bootstrap: str, topic: str) -> None:
        self._consumer: Any = AIOKafkaConsumer(
            topic, **client_kwargs(kafka, bootstrap), enable_auto_commit=False, auto_offset_reset="latest"
        )

    async def __aenter__(self) -> "Arrivals":
        await start(self._consumer)
        for partition in self._consumer.assignment():
            await self._consumer.position(partition)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.stop()

    async def __aiter__(self) -> AsyncIterator[Arrival | Watermark]:
        """Yield messages, tombstones and watermarks as they come; skip other records."""
        async for record in self._consumer:
            found = read(record, time.time())
            if found is not None:
                yield found


def read(record: Record, at: float) -> Arrival | Watermark | None:
    """Decode a record; None for events that the demo does not show."""
    envelope = Envelope.of_headers(record.headers)
    place: dict[str, Any] = {"partition": record.partition, "offset": record.offset, "at": at}
    if record.value is None:
        session = split(envelope.scope)[1] if envelope.scope else "(unknown)"
        return Arrival(split(envelope.subject)[1], session, "", None, **place)
    event = decode(envelope.name, envelope.version, record.value)
    if isinstance(event, MessageRecorded):
        author = split(event.user_id)[1] if event.user_id else event.role
        message, session = split(event.message_id)[1], split(event.session_id)[1]
        return Arrival(message, session, author, event.text, **place)
    return event if isinstance(event, Watermark) else None
