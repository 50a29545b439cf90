"""`memory.usage` as it is written, for people who watch: every call once."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from eden_memory.kafka.topic_reading import reading
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import ModelCalled, decode


@asynccontextmanager
async def usage_feed(client: dict[str, Any], topic: str) -> AsyncGenerator[AsyncGenerator[ModelCalled]]:
    """The calls published from the moment that the block is entered; an EdenError where there is no such topic."""
    async with reading(client, [topic]) as reader:
        reader.seek(reader.ends)
        yield _calls(reader.consumer)


async def _calls(consumer: Any) -> AsyncGenerator[ModelCalled]:
    seen: set[str] = set()
    async for record in consumer:
        envelope = Envelope.of_headers(record.headers)
        event = decode(envelope.name, envelope.version, record.value)
        if isinstance(event, ModelCalled) and event.call_id not in seen:
            seen.add(event.call_id)
            yield event
