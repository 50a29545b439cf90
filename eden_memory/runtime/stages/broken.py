"""Consumers and producers of aiokafka whose own tasks have ended: noticed, and closed all the same.

An error that aiokafka does not expect ends the task that met it; the client then stands still without a word, and
its `stop` raises the error before it has closed the connections.
"""

import asyncio
from contextlib import suppress
from typing import Any

from aiokafka.errors import KafkaError

CLOSE_SECONDS = 5.0
FAILURES = (KafkaError, OSError, RuntimeError, TimeoutError)


def consumer_broken(consumer: Any) -> bool:
    """Whether it fetches, or belongs to its group, no more."""
    return consumer._fetcher.error_future.done() or consumer._coordinator._coordination_task.done()


async def close_consumer(consumer: Any) -> None:
    """Leave the group if that is possible, and close the connections whatever happens."""
    consumer._closed = True
    for part in (consumer._coordinator, consumer._fetcher, consumer._client):
        with suppress(*FAILURES):
            async with asyncio.timeout(CLOSE_SECONDS):
                await part.close()


def sending(producer: Any) -> "asyncio.Task[None]":
    """The task without which no batch is confirmed any more."""
    return producer._sender.sender_task


async def close_producer(producer: Any) -> None:
    """Stop a producer that has failed, and close its connections whatever happens."""
    for close in (producer.stop, producer.client.close):
        with suppress(*FAILURES):
            async with asyncio.timeout(CLOSE_SECONDS):
                await close()
