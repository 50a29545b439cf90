"""Reads a topic as it lies there, for people: in no consumer group, and nothing is committed."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Literal

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from eden_memory.kafka import connection
from eden_memory.kafka.offsets import partitions_there
from eden_memory.observability.tapped_record import Tapped

Start = Literal["start", "end"] | datetime
"""From the first record kept, from the next one written, or from the broker's time."""
POLL_MS = 500
SILENT_POLLS = 10
"""After so many polls without a record it asks whether Kafka is there at all."""
ANSWER_SECONDS = 5.0
RETRY_MS = 1_000
"""Between two attempts to reach a broker that is gone; people watch, nothing waits for it."""
log = structlog.get_logger()


@asynccontextmanager
async def tapping(
    client: dict[str, Any], topic: str, start: Start, *, until_end: bool = False
) -> AsyncGenerator[AsyncGenerator[Tapped]]:
    """The records of a topic (whole name), in order per partition, uncommitted transactions included.

    The block is entered once every partition's place is fixed. `until_end`: only what was there then; else
    until the block is left. An EdenError where there is no such topic.
    """
    consumer: Any = AIOKafkaConsumer(
        **client, enable_auto_commit=False, auto_offset_reset="earliest", retry_backoff_ms=RETRY_MS
    )
    partitions = await partitions_there(client, topic)
    await connection.start(consumer)
    try:
        consumer.assign(partitions)
        ends: Mapping[TopicPartition, int] = await consumer.end_offsets(partitions)
        await _seek(consumer, partitions, ends, start)
        yield _until(consumer, ends) if until_end else _following(consumer, partitions[0])
    finally:
        await consumer.stop()


async def _seek(
    consumer: Any, partitions: Sequence[TopicPartition], ends: Mapping[TopicPartition, int], start: Start
) -> None:
    places: dict[TopicPartition, int] = dict(ends)
    if start == "start":
        places = await consumer.beginning_offsets(partitions)
    elif isinstance(start, datetime):
        milliseconds = int(start.timestamp() * 1000)
        found = await consumer.offsets_for_times(dict.fromkeys(partitions, milliseconds))
        places |= {tp: place.offset for tp, place in found.items() if place is not None}
    for tp, offset in places.items():
        consumer.seek(tp, offset)


async def _following(consumer: Any, partition: TopicPartition) -> AsyncGenerator[Tapped]:
    silent, answers = 0, True
    while True:
        batches = await consumer.getmany(timeout_ms=POLL_MS)
        for fetched in batches.values():
            for record in fetched:
                yield _tapped(record)
        silent = 0 if batches else silent + 1
        if silent >= SILENT_POLLS or (batches and not answers):
            silent, answers = 0, await _still_answers(consumer, partition, answers)


async def _still_answers(consumer: Any, partition: TopicPartition, before: bool) -> bool:
    """Whether Kafka is there; said when it goes and when it comes back."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await consumer.end_offsets([partition])
    except (KafkaError, TimeoutError):
        if before:
            log.warning("Kafka does not answer, waits for it")
        return False
    if not before:
        log.warning("Kafka answers again")
    return True


async def _until(consumer: Any, ends: Mapping[TopicPartition, int]) -> AsyncGenerator[Tapped]:
    """By the consumer's positions, not by records: markers of transactions take offsets, too."""
    while await _behind(consumer, ends):
        for tp, fetched in (await consumer.getmany(timeout_ms=POLL_MS)).items():
            for record in fetched:
                if record.offset < ends[tp]:
                    yield _tapped(record)


async def _behind(consumer: Any, ends: Mapping[TopicPartition, int]) -> bool:
    positions = await asyncio.gather(*(consumer.position(tp) for tp in ends))
    return any(position < end for position, end in zip(positions, ends.values(), strict=True))


def _tapped(record: Any) -> Tapped:
    place = record.topic, record.partition, record.offset
    return Tapped.of(place, record.key, record.value, record.headers, record.timestamp)
