"""Reads memory events from the start of the compacted topics with aiokafka alone, and keeps what holds now.

    python examples/consumers/plain_aiokafka.py --brokers 127.0.0.1:9092 --until-end

It imports nothing of Eden Memory: docs/asyncapi.yaml, schemas/json and schemas/examples are all that it was written
from. It joins no group and commits nothing; a program that goes on where it stopped sets `group_id`. The records are
compressed with zstd, for which aiokafka needs `cramjam` (`pip install aiokafka[zstd]`).
"""

import argparse
import asyncio
import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

TOPICS = ("memory.facts", "memory.reflections", "memory.consolidations")
FACT, REFLECTION, BLOB = "eden.FactChanged", "eden.ReflectionFormed", "eden.ScopeConsolidated"
KNOWN = {FACT: 1, REFLECTION: 1, BLOB: 1}
"""The newest version of each type that this program has been checked against; older ones read the same."""


class MemoryCopy:
    """Entity → version → event. Any number of repeats, in any order, leave it the same."""

    def __init__(self) -> None:
        self.held: defaultdict[tuple[str, str], dict[int, Any]] = defaultdict(dict)
        self.erased = set[str]()
        self.passed_over = 0

    def take(self, key: str, attributes: dict[str, str], value: bytes | None) -> str:
        """One record; says what it meant."""
        kind, _, number = attributes["ce_type"].rpartition(".v")
        entity, version = split(key)
        if value is None:  # a tombstone: its headers say which entity ended, and why
            self.erased.add(key)
            self.held[kind, entity].pop(version, None)
            return f"erased {attributes['ce_subject']}: {attributes.get('ce_reason')}"
        if int(number) > KNOWN.get(kind, 0):  # another type, or a version that is not known here
            self.passed_over += 1
            return f"passed over {attributes['ce_type']} {key}"
        event = json.loads(value)  # unknown fields are ignored
        if key not in self.erased:  # else a late copy
            self.held[kind, entity][version] = event
        return f"{kind} {key} {event['text']!r}"

    def view(self) -> dict[str, Any]:
        """Scope → its active facts, its buffer of reflections, and the text of its blob."""
        scopes: defaultdict[str, dict[str, Any]] = defaultdict(
            lambda: {"facts": {}, "buffer": {}, "blob": None}
        )
        for fact in self.active():
            scopes[fact["scope"]["key"]]["facts"][fact["fact_id"]] = fact["text"]
        absorbed = {one for blob in self.of(BLOB) for one in blob["absorbed"]}
        for reflection in self.newest(REFLECTION):
            name, waits = reflection["reflection_id"], reflection.get("retired_at") is None
            if waits and name not in absorbed:
                scopes[reflection["scope"]["key"]]["buffer"][name] = reflection["text"]
        for blob in self.newest(BLOB):
            scopes[blob["scope"]["key"]]["blob"] = blob["text"]
        return {"scopes": scopes, "erased": len(self.erased), "passed_over": self.passed_over}

    def active(self) -> list[Any]:
        """Facts that are not retired; of those of one scope that say the same, the first."""
        first: dict[tuple[str, str], Any] = {}
        for fact in sorted(self.newest(FACT), key=lambda one: (one["formed_at"], one["fact_id"])):
            if fact["retired_at"] is None:
                first.setdefault((fact["scope"]["key"], fact["hash"]), fact)
        return list(first.values())

    def newest(self, kind: str) -> Iterator[Any]:
        """The state of each entity: its highest version that is not erased."""
        return (versions[max(versions)] for (of, _), versions in self.held.items() if of == kind and versions)

    def of(self, kind: str) -> Iterator[Any]:
        """Every version."""
        return (one for (of, _), versions in self.held.items() if of == kind for one in versions.values())


def split(key: str) -> tuple[str, int]:
    """`entity@version`; the first version of a reflection has no number."""
    entity, at, version = key.rpartition("@")
    return (entity, int(version)) if at and version.isdecimal() else (key, 1)


async def main(brokers: str, prefix: str, until_end: bool) -> None:
    """Until Ctrl-C, or the end that the topics have now; then what holds, as JSON."""
    memory = MemoryCopy()
    topics = [prefix + topic for topic in TOPICS]
    consumer: Any = AIOKafkaConsumer(*topics, bootstrap_servers=brokers, auto_offset_reset="earliest")
    async with consumer:
        ends: dict[TopicPartition, int] = await consumer.end_offsets(consumer.assignment())
        while not until_end or await behind(consumer, ends):
            for fetched in (await consumer.getmany(timeout_ms=500)).values():
                for record in fetched:
                    attributes = {name: value.decode() for name, value in record.headers}
                    print(memory.take(record.key.decode(), attributes, record.value))
    print(json.dumps(memory.view(), sort_keys=True))


async def behind(consumer: Any, ends: dict[TopicPartition, int]) -> bool:
    """By position, not by record: what the brokers keep for themselves takes offsets, too."""
    return any([await consumer.position(one) < end for one, end in ends.items()])


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--brokers", default="127.0.0.1:9092", help="host:port,…")
    options.add_argument("--prefix", default="", help="topic prefix of the installation")
    options.add_argument("--until-end", action="store_true", help="stop at the end that the topics have now")
    asyncio.run(main(**vars(options.parse_args())))
