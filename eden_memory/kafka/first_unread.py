"""When the first record from an offset on came into its partition: read from there, kept while nothing moves."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from eden_memory.kafka import connection

Place = tuple[TopicPartition, int]
ROUND_SECONDS = 1.0
"""What could not be read by then is left out, and read the next time."""
FETCH_BYTES = 4_096


class FirstUnread:
    """A consumer without a group. A transaction marker takes an offset and is no record: nothing may be there."""

    def __init__(self, client: dict[str, Any]) -> None:
        self._consumer: Any = AIOKafkaConsumer(
            **client,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=FETCH_BYTES,
            fetch_max_wait_ms=50,
        )
        self._known: dict[Place, float] = {}
        self._nothing: dict[Place, int] = {}
        """Places behind which there was no record up to this end."""

    async def start(self) -> None:
        """Connect."""
        await connection.start(self._consumer)

    async def stop(self) -> None:
        """Disconnect."""
        await self._consumer.stop()

    async def times(self, places: Mapping[Place, int]) -> Mapping[Place, float | None]:
        """Place → seconds since the epoch (None: no record up to the end given); unknown ones are left out."""
        self._known = {place: at for place, at in self._known.items() if place in places}
        self._nothing = {place: end for place, end in self._nothing.items() if places.get(place) == end}
        wanted = [place for place in places if place not in self._known and place not in self._nothing]
        until = time.monotonic() + ROUND_SECONDS
        while wanted and time.monotonic() < until:
            now = _one_of_each(wanted)
            await self._read(now, places, until)
            wanted = [place for place in wanted if place[0] not in now or now[place[0]] != place[1]]
        return {**self._known, **dict.fromkeys(self._nothing)}

    async def _read(
        self, offsets: dict[TopicPartition, int], ends: Mapping[Place, int], until: float
    ) -> None:
        """One offset of each partition."""
        self._consumer.assign(list(offsets))
        for tp, offset in offsets.items():
            self._consumer.seek(tp, offset)
        left = dict(offsets)
        while left and time.monotonic() < until:
            for tp, records in (await self._consumer.getmany(*left, timeout_ms=100)).items():
                if records:
                    self._known[tp, left.pop(tp)] = records[0].timestamp / 1_000
                    self._consumer.pause(tp)
            for tp, offset in list(left.items()):
                if await self._consumer.position(tp) >= ends[tp, offset]:
                    self._nothing[tp, left.pop(tp)] = ends[tp, offset]


def _one_of_each(places: Sequence[Place]) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for tp, offset in places:
        found.setdefault(tp, offset)
    return found
