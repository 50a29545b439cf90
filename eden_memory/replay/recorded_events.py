"""The events that a topic holds, read in no group."""

from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import NamedTuple

from eden_memory.kafka import KafkaArguments
from eden_memory.kafka.record import Record
from eden_memory.kafka.topic_reading import Offsets, reading
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import REGISTRY, Event


class Recorded(NamedTuple):
    """An event, and the record that it was read from."""

    event: Event
    envelope: Envelope
    record: Record


async def recorded(
    kafka: KafkaArguments, topic: str, since: Offsets | None = None
) -> AsyncGenerator[list[Recorded]]:
    """Yield the events of a topic up to its present ends, without tombstones and records that cannot be read."""
    async with reading(kafka, [topic], since) as source:
        async for batch in source.batches():
            yield [found for record in batch if (found := recorded_event(record)) is not None]


def recorded_event(record: Record) -> Recorded | None:
    """Return a record's event; None for a tombstone, and for what no program of ours wrote."""
    with suppress(ValueError):
        envelope = Envelope.of_headers(record.headers)
        if record.value:
            return Recorded(REGISTRY.decode(envelope.name, envelope.version, record.value), envelope, record)
    return None
