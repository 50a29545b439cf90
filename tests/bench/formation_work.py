"""Counts what a run of formation had to do: provider calls, MongoDB's commands, records written and read."""

from collections.abc import Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from pymongo import AsyncMongoClient

from eden_memory.kafka.topics import load_topics
from eden_memory.processors import pipeline
from eden_memory.settings import Settings
from tests.bench.bare_clients import Work

CHATS = ("facts", "decisions", "reflections", "consolidation")
COMMANDS = ("find", "aggregate", "insert", "update", "findAndModify", "commitTransaction")
DOCUMENTS = ("returned", "inserted", "updated")
CHARACTERS_A_TOKEN = 4

Counts = dict[str, int]


async def commands_so_far(mongo: AsyncMongoClient[dict[str, Any]]) -> tuple[Counts, Counts]:
    """Commands by name, and documents by what became of them, since the server started: it is the run's own."""
    metrics: dict[str, Any] = (await mongo.admin.command("serverStatus"))["metrics"]
    commands = {name: int(metrics["commands"][name]["total"]) for name in COMMANDS}
    return commands, {name: int(metrics["document"][name]) for name in DOCUMENTS}


async def work_of(
    settings: Settings,
    mongo: AsyncMongoClient[dict[str, Any]],
    client: Mapping[str, Any],
    before: tuple[Counts, Counts],
    counts: Mapping[str, Any],
    openai_url: str,
    texts: int,
) -> Work:
    """What a run did; `before` was taken at its start, `counts` are the model server's, `texts` were embedded."""
    commands, documents = [
        {name: number - old[name] for name, number in new.items()}
        for new, old in zip(await commands_so_far(mongo), before, strict=True)
    ]
    calls: Counts = counts["calls"]
    chats = sum(calls.get(kind, 0) for kind in CHATS)
    records, size, deliveries = await _records(settings, dict(client))
    return Work(
        mongodb_uri=settings.mongodb.uri.get_secret_value() if settings.mongodb.uri else "",
        database=settings.mongodb.database,
        kafka=dict(client),
        topic=settings.kafka.topic_prefix + "memory.usage",
        openai_url=openai_url,
        chats=chats,
        prompt_characters=counts["input_tokens"] * CHARACTERS_A_TOKEN // max(chats, 1),
        embeddings=calls.get("embeddings", 0),
        texts=texts // max(calls.get("embeddings", 0), 1),
        commands=commands,
        documents=documents,
        records=records,
        record_bytes=size // max(records, 1),
        deliveries=deliveries,
    )


async def _records(settings: Settings, client: dict[str, Any]) -> tuple[int, int, int]:
    """How many there are in the run's topics, their bytes, and how often all groups read one, in all."""
    readers = {
        TopicPartition(topic.name, number): sum(name in pipeline.NAMES for name in topic.declaration.groups)
        for topic in load_topics(settings.kafka)
        for number in range(topic.partitions)
    }
    consumer: Any = AIOKafkaConsumer(**client, auto_offset_reset="none", enable_auto_commit=False)
    await consumer.start()
    records = size = deliveries = 0
    try:
        ends: dict[TopicPartition, int] = await consumer.end_offsets(list(readers))
        left = {tp: end for tp, end in ends.items() if end}
        consumer.assign(list(left))
        for tp in left:
            consumer.seek(tp, 0)
        while left := {tp: end for tp, end in left.items() if await consumer.position(tp) < end}:
            for tp, found in (await consumer.getmany(timeout_ms=1_000)).items():
                records, deliveries = records + len(found), deliveries + readers[tp] * len(found)
                size += sum(len(one.value or b"") for one in found)
    finally:
        await consumer.stop()
    return records, size, deliveries
