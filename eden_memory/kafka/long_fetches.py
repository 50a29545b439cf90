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
FETCHER_MS = 1_000
"""A fetcher that nothing has woken looks what to fetch."""
WAKE_SECONDS = 0.05


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
        request._max_wait_ms = LONG_MS if asked == led else SHORT_MS
        try:
            answer = await send(node_id, request, group=FETCHES)
        except asyncio.CancelledError:
            if (connection := client._conns.pop((node_id, FETCHES), None)) is not None:
                connection.close()
            raise
        # aiokafka does so a turn of the loop later: a fetcher that wakes in between would ask for nothing.
        consumer._fetcher._in_flight.discard(node_id)
        return answer

    client.send = sent


def wake_fetcher_soon(consumer: Any) -> None:
    """Let a fetcher look again what to fetch.

    Positions that are set in the moment in which it has found others do not wake it.
    """

    def wake() -> None:
        consumer._fetcher._notify(consumer._fetcher._wait_consume_future)

    asyncio.get_running_loop().call_later(WAKE_SECONDS, wake)
