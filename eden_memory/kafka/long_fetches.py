"""Fetches of an idle consumer that wait long at the broker, on a connection of their own.

A broker answers the requests of one connection one after another: what follows a fetch stands behind it. So fetches
have a connection of their own, and one that is cancelled, as when partitions move, closes it.

While a fetch of a broker is under way, aiokafka asks that broker for nothing else. A fetch that leaves out a
partition (paused, not yet consumed, not yet placed) keeps records of that partition waiting, so it stays short.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Any

from aiokafka import TopicPartition
from aiokafka.protocol.fetch import FetchRequest

FETCHES = "fetches"
"""The group of a client's connections that carries them."""
SHORT_MS, LONG_MS = 500, 5_000
FETCHER_MS = 500
"""So often a fetcher looks what to fetch. What wakes it in the moment in which a request ends, it loses."""


def let_fetches_wait(consumer: Any, settled: Callable[[], Collection[TopicPartition]]) -> None:
    """Let a consumer's fetches wait LONG_MS for records where they ask for all `settled` partitions of a broker.

    `settled`: the partitions that are read from where they should be.
    """
    client = consumer._client
    send = client.send

    async def sent(node_id: int, request: Any, **more: Any) -> Any:
        if not isinstance(request, FetchRequest):
            return await send(node_id, request, **more)
        asked = sum(len(partitions) for _, partitions in request.topics)
        led = sum(client.cluster.leader_for_partition(tp) == node_id for tp in settled())
        request._max_wait_ms = LONG_MS if asked == led else SHORT_MS  # pyright: ignore[reportPrivateUsage]
        try:
            return await send(node_id, request, group=FETCHES)
        except asyncio.CancelledError:
            if (connection := client._conns.pop((node_id, FETCHES), None)) is not None:
                connection.close()
            raise

    client.send = sent
