"""`memory.usage` as it is written, for people who watch: every call once."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer

from eden_memory.kafka.connection import start
from eden_memory.kafka.offsets import partitions_there
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import ModelCalled, decode


@asynccontextmanager
async def usage_feed(client: dict[str, Any], topic: str) -> AsyncGenerator[AsyncGenerator[ModelCalled]]:
    """The calls published from the moment that the block is entered; an EdenError where there is no such topic."""
    partitions = await partitions_there(client, topic)
    consumer: Any = AIOKafkaConsumer(**client, auto_offset_reset="latest", enable_auto_commit=False)
    try:
        await start(consumer)
        consumer.assign(partitions)
        for tp in partitions:
            await consumer.position(tp)
        yield _calls(consumer)
    finally:
        await consumer.stop()


async def _calls(consumer: Any) -> AsyncGenerator[ModelCalled]:
    seen: set[str] = set()
    async for record in consumer:
        envelope = Envelope.of_headers(record.headers)
        event = decode(envelope.name, envelope.version, record.value)
        if isinstance(event, ModelCalled) and event.call_id not in seen:
            seen.add(event.call_id)
            yield event
