"""chat.messages as another program would read it: from now on, every partition, no group."""

import time
from collections.abc import AsyncIterator
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord

from eden_memory.demo.journey import Arrival
from eden_memory.kafka.connection import client_kwargs
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import MessageRecorded, Watermark, decode
from eden_memory.schemas.ids import split
from eden_memory.settings import KafkaSettings

Record = ConsumerRecord[bytes, bytes]


class Arrivals:
    """Reads from the topic's end as it is when the block is entered."""

    def __init__(self, kafka: KafkaSettings, bootstrap: str, topic: str) -> None:
        self._consumer: Any = AIOKafkaConsumer(
            topic, **client_kwargs(kafka, bootstrap), enable_auto_commit=False, auto_offset_reset="latest"
        )

    async def __aenter__(self) -> "Arrivals":
        await self._consumer.start()
        for partition in self._consumer.assignment():
            await self._consumer.position(partition)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.stop()

    async def __aiter__(self) -> AsyncIterator[Arrival | Watermark]:
        """Messages, tombstones and watermarks, as they come; other records are left out."""
        async for record in self._consumer:
            found = read(record, time.time())
            if found is not None:
                yield found


def read(record: Record, at: float) -> Arrival | Watermark | None:
    """What a record says; None for events that the demo does not show."""
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
