"""The newest records of keys that a receipt names."""

from collections.abc import Collection

from eden_memory.kafka import KafkaArguments
from eden_memory.kafka.topic_reading import TopicOffsets, reading_partitions


async def newest_of(kafka: KafkaArguments, topic: str, keys: Collection[str]) -> tuple[dict[str, bool], int]:
    """Return for each key whether its newest record has a value, and how many records of them have one."""
    async with TopicOffsets(kafka, [topic]) as offsets:
        partitions = offsets.partitions
    newest: dict[str, bool] = {}
    values = 0
    async with reading_partitions(kafka, partitions) as reader:
        async for batch in reader.batches():
            for record in batch:
                if (key := (record.key or b"").decode(errors="replace")) in keys:
                    newest[key] = record.value is not None
                    values += record.value is not None
    return newest, values
