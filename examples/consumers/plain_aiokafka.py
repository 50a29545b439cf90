"""Reads memory events from the start of the compacted topics with aiokafka alone, and keeps what holds now.

    python examples/consumers/plain_aiokafka.py --brokers 127.0.0.1:9092 --until-end

It imports nothing of Eden Memory: docs/asyncapi.yaml, schemas/json and schemas/examples are all that it was written
from. It joins no group and commits nothing; a program that goes on where it stopped sets `group_id`.
"""

import argparse
import asyncio
import json
from collections import defaultdict
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

TOPICS = ("memory.facts", "memory.reflections", "memory.consolidations")


class Memory:
    """Entity → version → text. Any number of repeats, in any order, leave it the same."""

    def __init__(self) -> None:
        self.held: defaultdict[str, dict[int, str]] = defaultdict(dict)
        self.erased = set[str]()

    def take(self, key: str, attributes: dict[str, str], value: bytes | None) -> str:
        """One record; says what it meant."""
        entity, version = split(key)
        if value is None:  # a tombstone: its headers say which entity ended, and why
            self.erased.add(key)
            self.held[entity].pop(version, None)
            return f"erased {attributes['ce_subject']}: {attributes.get('ce_reason')}"
        text = json.loads(value).get("text")  # unknown fields are ignored: a later version may have more
        if text is not None and key not in self.erased:
            self.held[entity][version] = text
        return f"{attributes['ce_type']} {key} {text!r}"

    def summary(self) -> dict[str, int]:
        """How much holds, how much was erased."""
        return {"held": sum(bool(versions) for versions in self.held.values()), "erased": len(self.erased)}


def split(key: str) -> tuple[str, int]:
    """Facts and blobs: `entity@version`; reflections have one version only."""
    entity, at, version = key.rpartition("@")
    return (entity, int(version)) if at and version.isdecimal() else (key, 1)


async def main(brokers: str, prefix: str, until_end: bool) -> None:
    """Until Ctrl-C, or the end that the topics have now."""
    memory = Memory()
    topics = [prefix + topic for topic in TOPICS]
    consumer: Any = AIOKafkaConsumer(*topics, bootstrap_servers=brokers, auto_offset_reset="earliest")
    async with consumer:
        ends: dict[TopicPartition, int] = await consumer.end_offsets(consumer.assignment())
        while not until_end or await behind(consumer, ends):
            for fetched in (await consumer.getmany(timeout_ms=500)).values():
                for record in fetched:
                    attributes = {name: value.decode() for name, value in record.headers}
                    print(memory.take(record.key.decode(), attributes, record.value))
    print(json.dumps(memory.summary()))


async def behind(consumer: Any, ends: dict[TopicPartition, int]) -> bool:
    """By position, not by record: what the brokers keep for themselves takes offsets, too."""
    return any([await consumer.position(one) < end for one, end in ends.items()])


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--brokers", default="127.0.0.1:9092", help="host:port,…")
    options.add_argument("--prefix", default="", help="topic prefix of the installation")
    options.add_argument("--until-end", action="store_true", help="stop at the end that the topics have now")
    asyncio.run(main(**vars(options.parse_args())))
