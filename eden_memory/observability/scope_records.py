"""Read the records of some scopes from the memory topics: one partition of each, up to its end at the start."""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from eden_memory.kafka.connection import start
from eden_memory.kafka.offsets import partitions_of
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import Event, decode
from eden_memory.stages.publishing import partition_for

POLL_MS = 1_000


class ScopeRecord(NamedTuple):
    """One record as a topic keeps it."""

    envelope: Envelope
    event: Event


async def scope_records(
    client: dict[str, Any], topics: Sequence[str], scope_keys: Collection[str]
) -> list[ScopeRecord]:
    """The newest record of each key in these topics (full names) that is of one of the scopes; none erased."""
    partitions = await _partitions(client, topics, scope_keys)
    if not partitions:
        return []
    consumer: Any = AIOKafkaConsumer(**client, enable_auto_commit=False, isolation_level="read_uncommitted")
    await start(consumer)
    try:
        return await _read(consumer, partitions, {scope_key.encode() for scope_key in scope_keys})
    finally:
        await consumer.stop()


async def _partitions(
    client: dict[str, Any], topics: Sequence[str], keys: Collection[str]
) -> list[TopicPartition]:
    admin: Any = AIOKafkaAdminClient(**client)
    await start(admin)
    try:
        there = Counter(tp.topic for tp in await partitions_of(admin, topics))
    finally:
        await admin.close()
    wanted = {(topic, partition_for(key.encode(), there[topic])) for topic in there for key in keys}
    return [TopicPartition(*partition) for partition in sorted(wanted)]


async def _read(
    consumer: Any, partitions: list[TopicPartition], keys: Collection[bytes]
) -> list[ScopeRecord]:
    consumer.assign(partitions)
    await consumer.seek_to_beginning(*partitions)
    ends = await consumer.end_offsets(partitions)
    found: dict[tuple[str, bytes], Any] = {}
    left = {tp for tp in partitions if ends[tp] > 0}
    while left:
        for tp, records in (await consumer.getmany(*left, timeout_ms=POLL_MS)).items():
            found.update({(tp.topic, record.key): record for record in records if _ordering(record) in keys})
        left = {tp for tp in left if await consumer.position(tp) < ends[tp]}
    return [_scope_record(record) for record in found.values() if record.value is not None]


def _ordering(record: Any) -> bytes:
    return dict(record.headers).get("ce_orderingkey", b"")


def _scope_record(record: Any) -> ScopeRecord:
    envelope = Envelope.of_headers(record.headers)
    return ScopeRecord(envelope, decode(envelope.name, envelope.version, record.value))
