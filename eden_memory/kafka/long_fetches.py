"""Fetches of an idle consumer that wait long at the broker, on a connection of their own.

A broker answers the requests of one connection one after another: what follows a fetch stands behind it. So fetches
have a connection of their own, and one that is cancelled, as when partitions move, closes it.

While a fetch of a broker is under way, aiokafka asks that broker for nothing else. A fetch that leaves out a
partition (paused, not yet consumed, not yet placed) keeps records of that partition waiting, so it stays short.

A consumer that has time rests before the next fetch where the last one brought little, and a group's only member
sends fewer heartbeats.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from aiokafka import TopicPartition
from aiokafka.protocol.fetch import FetchRequest

from eden_memory.tasks import until_tick

FETCHES = "fetches"
"""The group of a client's connections that carries them."""
SHORT_MS, LONG_MS = 500, 10_000
FETCHER_MS = 1_000
"""Milliseconds between two looks of a fetcher for what to fetch.

A wake-up that arrives at the very moment when a request ends is lost.
"""

LITTLE_BYTES = 20_000
SPARING_SECONDS = 3.0
"""Seconds between two heartbeats of a group's only member: three of them fit into the session's timeout."""


def let_fetches_wait(
    consumer: Any, settled: Callable[[], Collection[TopicPartition]], rest: float = 0.0
) -> None:
    """Let a consumer's fetches wait LONG_MS for records where they ask for all `settled` partitions of a broker.

    `settled`: the partitions that are read from where they should be. `rest`: seconds between a fetch that brought
    records, but few, and the next one to the same broker.
    """
    client = consumer._client
    send = client.send
    rested: dict[int, float] = {}

    async def sent(node_id: int, asking: Any, **more: Any) -> Any:
        if not isinstance(asking, FetchRequest):
            return await send(node_id, asking, **more)
        if (left := rested.get(node_id, 0.0) - time.monotonic()) > 0:
            await asyncio.sleep(left)
        request: Any = asking
        asked = sum(len(partitions) for _, partitions in request.topics)
        led = sum(client.cluster.leader_for_partition(tp) == node_id for tp in settled())
        request._max_wait_ms = LONG_MS if asked == led else SHORT_MS  # pyright: ignore[reportPrivateUsage]
        try:
            response = await send(node_id, request, group=FETCHES)
        except asyncio.CancelledError:
            if (connection := client._conns.pop((node_id, FETCHES), None)) is not None:
                connection.close()
            raise
        rested[node_id] = time.monotonic() + (rest if 0 < _size(response) < LITTLE_BYTES else 0.0)
        return response

    client.send = sent


def _size(response: Any) -> int:
    """Return the bytes of the records that a fetch brought."""
    return sum(len(partition[-1] or b"") for _, partitions in response.topics for partition in partitions)


def spare_heartbeats(
    consumer: Any, alone: Callable[[], bool], pause: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> None:
    """Let a member that is `alone` wait longer before a heartbeat, unless the last one failed.

    Heartbeats tell a member of a rebalance. While it is told of one late, it goes on with its partitions, and only
    whoever joins waits; between several members, those that were told stand still for those that were not.
    """
    coordinator = consumer._coordinator
    send, answered = coordinator._do_heartbeat, False

    async def beat() -> bool:
        nonlocal answered
        if answered and alone():
            await pause(until_tick(SPARING_SECONDS) % SPARING_SECONDS)
        answered = await send()
        return answered

    coordinator._do_heartbeat = beat
