"""Readers of `chat.messages`: one that follows it through every fault, and one that reads it whole at the end."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from tests.chaos.seen import Seen, seen

PAUSE = 0.2


class Reader:
    """Sees every record once, in the order of each partition, whatever happens to the broker meanwhile."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._bootstrap = bootstrap
        self._next = {TopicPartition(topic, number): 0 for number in range(partitions)}
        self.records: list[Seen] = []
        self.arrived: dict[str, float] = {}
        """When a message or control record came for the first time, by key."""
        self.watermarks: dict[int, str] = {}

    async def follow(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self._read()
            except KafkaError:
                await asyncio.sleep(PAUSE)

    async def _read(self) -> None:
        async with consumer(self._bootstrap, list(self._next), "read_uncommitted") as reading:
            for place, offset in self._next.items():
                reading.seek(place, offset)
            while True:
                self._take(await reading.getmany(timeout_ms=200))

    def _take(self, found: dict[Any, list[Any]]) -> None:
        now = time.monotonic()
        for place, records in found.items():
            for one in filter(None, (seen(record, now) for record in records)):
                self._note(one)
            self._next[place] = records[-1].offset + 1

    def _note(self, one: Seen) -> None:
        self.records.append(one)
        if one.kind == "watermark":
            self.watermarks[one.partition] = max(one.version, self.watermarks.get(one.partition, ""))
        elif one.kind != "ended":
            self.arrived.setdefault(one.key, one.at)


async def read_whole(bootstrap: str, topic: str, partitions: int, isolation: str) -> list[Seen]:
    """All records up to the end that the topic has now, by partition and offset."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    found: list[Seen] = []
    async with consumer(bootstrap, places, isolation) as reading:
        await reading.seek_to_beginning(*places)
        ends = await reading.end_offsets(places)
        while any([await reading.position(place) < end for place, end in ends.items()]):
            for records in (await reading.getmany(timeout_ms=500)).values():
                found += filter(None, map(seen, records))
    return sorted(found)


@asynccontextmanager
async def consumer(bootstrap: str, places: Sequence[TopicPartition], isolation: str) -> AsyncGenerator[Any]:
    """A consumer without a group."""
    reading: Any = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level=isolation,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        metadata_max_age_ms=2_000,
        request_timeout_ms=10_000,
    )
    reading.assign(places)
    try:
        await reading.start()
        yield reading
    finally:
        await reading.stop()
