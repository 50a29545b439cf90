"""A compaction that cannot wait: the topic's cleaner is made to work at once, and waited for."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,  # pyright: ignore[reportPrivateImportUsage, reportUnknownVariableType]
    AlterConfigOpType,  # pyright: ignore[reportPrivateImportUsage]
    ConfigEntry,  # pyright: ignore[reportPrivateImportUsage]
    ConfigResource,  # pyright: ignore[reportPrivateImportUsage]
    ResourceType,  # pyright: ignore[reportPrivateImportUsage]
)

from tests.chaos.reader import read_whole
from tests.chaos.seen import Seen
from tests.chaos.waiting import PATIENCE, NotInTime

HURRY = {
    "min.cleanable.dirty.ratio": "0.0",
    "segment.ms": "1000",
    "max.compaction.lag.ms": "1000",
    "min.compaction.lag.ms": "0",
}
ATTEMPTS = 20
FILLER_PAUSE = 1.5
"""Longer than `segment.ms`: the next record begins a new segment, and what was written before can be cleaned."""


async def compacted(bootstrap: str, topic: str, partitions: int) -> list[Seen]:
    """The topic's records once no key stands twice in a partition; NotInTime if the cleaner does not get there."""
    await asyncio.to_thread(hurry, bootstrap, topic)
    for _ in range(int(PATIENCE / FILLER_PAUSE)):
        await asyncio.sleep(FILLER_PAUSE)
        await fill(bootstrap, topic, partitions)
        records = await read_whole(bootstrap, topic, partitions, "read_uncommitted")
        if max(Counter((one.key, one.partition) for one in records).values(), default=0) <= 1:
            return records
    raise NotInTime(f"{topic} was not compacted within {PATIENCE:.0f} s")


def hurry(bootstrap: str, topic: str) -> None:
    """Have the topic compacted as soon as can be."""
    configure(bootstrap, [topic], HURRY)


def configure(bootstrap: str, topics: Sequence[str], settings: Mapping[str, str]) -> None:
    """Set these settings of the topics; again while the broker is away."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resources = [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries) for topic in topics]
    admin: Any = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for attempt in range(ATTEMPTS):
        try:
            for answer in admin.incremental_alter_configs(resources, request_timeout=60).values():
                answer.result(60)
        except KafkaException:
            if attempt + 1 == ATTEMPTS:
                raise
            time.sleep(1.0)
        else:
            return


async def fill(bootstrap: str, topic: str, partitions: int) -> None:
    """A record in each partition that is not the tailer's."""
    producer: Any = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
    await producer.start()
    try:
        for number in range(partitions):
            await producer.send_and_wait(topic, key=b"filler", value=b"{}", partition=number)
    finally:
        await producer.stop()
