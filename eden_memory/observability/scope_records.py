"""Read the records of some scopes from the memory topics: one partition of each, up to its end at the start."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from aiokafka import TopicPartition

from eden_memory.kafka import KafkaArguments
from eden_memory.kafka.record import Record
from eden_memory.kafka.topic_reading import partitions_asked, reading_partitions
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import Event, FactChanged, decode
from eden_memory.stages.publishing import partition_for


class ScopeRecord(NamedTuple):
    """One record as a topic keeps it, without the vector of a fact: the largest part, which no reader needs."""

    envelope: Envelope
    event: Event


async def scope_records(
    kafka: KafkaArguments, topics: Sequence[str], scope_keys: Collection[str], used: Mapping[str, int]
) -> list[ScopeRecord]:
    """The newest record of each key in these topics (full names) that is of one of the scopes; none erased.

    `used`: the partitions that keys of a topic are spread over, of one that it does not name all.
    """
    there = {**Counter(tp.topic for tp in await partitions_asked(kafka, topics))}
    there = {topic: used.get(topic, count) for topic, count in there.items()}
    keys = {scope_key.encode() for scope_key in scope_keys}
    partitions = {TopicPartition(topic, partition_for(key, there[topic])) for topic in there for key in keys}
    if not partitions:
        return []
    found: dict[tuple[str, bytes | None], ScopeRecord | None] = {}
    async with reading_partitions(kafka, sorted(partitions)) as reader:
        async for batch in reader.batches():
            found.update(
                {
                    (record.topic, record.key): _scope_record(record)
                    for record in batch
                    if record.ordering_key in keys
                }
            )
    return [record for record in found.values() if record is not None]


def _scope_record(record: Record) -> ScopeRecord | None:
    if record.value is None:
        return None
    envelope = Envelope.of_headers(record.headers)
    return ScopeRecord(envelope, _without_vector(decode(envelope.name, envelope.version, record.value)))


def _without_vector(event: Event) -> Event:
    if not isinstance(event, FactChanged) or event.embedding is None:
        return event
    embedding = event.embedding.model_copy(update={"vector": b""})
    return event.model_copy(update={"embedding": embedding})
