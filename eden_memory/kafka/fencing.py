"""Shut earlier producers of a transactional id out of topics, without a transaction over what is sent.

Kafka counts the producers of a transactional id: each one that starts has the next epoch. A partition refuses a batch
whose epoch is lower than the newest that it has seen, also a batch outside of transactions.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiokafka import AIOKafkaProducer, TopicPartition

from eden_memory.kafka import KafkaArguments
from eden_memory.kafka.broken_clients import closed, starting

AGAIN_MS = 20
"""While the previous transaction is being ended, Kafka asks a producer to start again."""


class ProducerIdentity(NamedTuple):
    """The name under which a producer's batches are accepted, until the next producer of its id starts."""

    id: int
    epoch: int


async def fence(kafka: KafkaArguments, transactional_id: str, topics: Sequence[str]) -> ProducerIdentity:
    """Make every partition of the topics refuse the earlier producers of an id; KafkaError.

    An empty transaction writes a marker with the new epoch to each partition. The second producer starts only when
    all markers are written, so that nothing of an earlier producer can follow.
    """
    async with markers(kafka, transactional_id, topics) as append:
        await append()
    async with _started(kafka, transactional_id) as producer:
        transactions = producer._txn_manager
        return ProducerIdentity(transactions.producer_id, transactions.producer_epoch)


Markers = Callable[[], Awaitable[None]]
"""Appends a transaction's marker to each partition."""


@asynccontextmanager
async def markers(
    kafka: KafkaArguments, transactional_id: str, topics: Sequence[str]
) -> AsyncGenerator[Markers]:
    """Return a function that appends an empty transaction's marker to every partition of the topics; KafkaError."""
    async with _started(kafka, transactional_id) as producer:
        places = [place for topic in topics for place in await _partitions(producer, topic)]

        async def append() -> None:
            await producer.begin_transaction()
            for place in places:
                producer._txn_manager.maybe_add_partition_to_txn(place)
            await producer.abort_transaction()

        yield append


def take_identity(producer: Any, identity: ProducerIdentity) -> None:
    """Make an idempotent producer that has not started yet send under the given identity."""
    producer._txn_manager.set_pid_and_epoch(*identity)


@asynccontextmanager
async def _started(kafka: KafkaArguments, transactional_id: str) -> AsyncGenerator[Any]:
    producer: Any = AIOKafkaProducer(**kafka, transactional_id=transactional_id, retry_backoff_ms=AGAIN_MS)
    try:
        with starting():
            await producer.start()
        yield producer
    finally:
        await closed(producer.stop)


async def _partitions(producer: Any, topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in await producer.partitions_for(topic)]
