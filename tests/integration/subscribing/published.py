"""Topics of a namespace filled with the examples that every version of every event is kept with."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from eden_memory.kafka.topics import load_topics
from eden_memory.schemas.envelope import Envelope, Headers
from eden_memory.schemas.events import REGISTRY
from eden_memory.schemas.example_files import examples_of
from eden_memory.settings import Settings

PARTITIONS = 3
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
MEMORY = ("memory.facts", "memory.reflections", "memory.consolidations")


@dataclass(frozen=True)
class Writing:
    """Writes records to the topics of one namespace."""

    settings: Settings
    producer: Any

    async def record(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers, partition: int = 0
    ) -> None:
        name = self.settings.kafka.topic_prefix + topic
        await self.producer.send_and_wait(name, value, key=key, headers=headers, partition=partition)

    async def examples(self, topic: str) -> int:
        """Every example of the topic's events, then a tombstone of the first; returns how many records."""
        declared, keys = load_topics(self.settings.kafka).file.topics[topic], list[tuple[str, str, bytes]]()
        for name in declared.events:
            event = REGISTRY.events[name]
            for number, payload in enumerate(examples_of(name, event.VERSION).values()):
                one = event.model_validate_json(json.dumps(payload))
                about = self.envelope(name, f"{name}-{number}", one.subject(), one.ordering_key())
                keys.append((one.key(), one.ordering_key(), one.json_bytes()))
                await self.record(
                    topic, one.key().encode(), one.json_bytes(), about.headers(), number % PARTITIONS
                )
        first, ordering_key, _ = keys[0]
        gone = self.envelope(declared.events[0], "gone-1", first, ordering_key)._replace(reason="forgotten")
        await self.record(topic, first.encode(), None, gone.headers())
        return len(keys) + 1

    async def groups(self) -> list[str]:
        """Consumer groups of the namespace."""
        admin: Any = AIOKafkaAdminClient(bootstrap_servers=self.settings.kafka.bootstrap or "")
        await admin.start()
        try:
            found = await admin.list_consumer_groups()
        finally:
            await admin.close()
        return sorted(name for name, *_ in found if name.startswith(self.settings.kafka.group_prefix))

    def envelope(self, name: str, id: str, subject: str, ordering_key: str) -> Envelope:  # noqa: A002
        return Envelope(id, name, REGISTRY.events[name].VERSION, "test", NOON, subject, ordering_key)


@asynccontextmanager
async def writing(settings: Settings, topics: Sequence[str] = MEMORY) -> AsyncGenerator[Writing]:
    """The topics, made, and a producer."""
    bootstrap, prefix = settings.kafka.bootstrap or "", settings.kafka.topic_prefix
    admin: Any = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    producer: Any = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
    await asyncio.gather(admin.start(), producer.start())
    try:
        made = await admin.create_topics([NewTopic(prefix + one, PARTITIONS, 1) for one in topics])
        assert not any(code for _, code, *_ in made.topic_errors), made
        yield Writing(settings, producer)
    finally:
        await asyncio.gather(admin.close(), producer.stop())
