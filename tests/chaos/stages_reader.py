"""Follows the stages' output through every fault, and knows what the workers' diaries say."""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from aiokafka import TopicPartition

from tests.chaos.reader import Reader


@dataclass(frozen=True)
class Arrived:
    """One record of an output topic; `at` is monotonic."""

    topic: str
    partition: int
    offset: int
    key: str
    value: bytes | None
    headers: Mapping[str, str]
    at: float

    @property
    def name(self) -> str:
        """The event's name: `Answered`."""
        return self.headers.get("ce_type", "").removeprefix("eden.").rpartition(".")[0]


class Arrivals(Reader):
    """Sees every record of several topics (name → partitions) once, in the order of each partition."""

    def __init__(self, bootstrap: str, topics: Mapping[str, int]) -> None:
        super().__init__(bootstrap, "", 0)
        self._next = {
            TopicPartition(topic, number): 0 for topic, most in topics.items() for number in range(most)
        }
        self.of: dict[str, list[Arrived]] = {topic: [] for topic in topics}
        self.keys: dict[str, set[str]] = defaultdict(set)

    def _take(self, found: dict[Any, list[Any]]) -> None:
        now = time.monotonic()
        for place, records in found.items():
            for one in records:
                arrived = _arrived(one, now)
                self.of[place.topic].append(arrived)
                self.keys[place.topic].add(arrived.key)
            self._next[place] = records[-1].offset + 1


def _arrived(one: Any, now: float) -> Arrived:
    headers = {name: value.decode(errors="replace") for name, value in one.headers}
    key = (one.key or b"").decode(errors="replace")
    return Arrived(one.topic, one.partition, one.offset, key, one.value, headers, now)


def diaries(folder: Path) -> Iterator[dict[str, Any]]:
    """All lines of all workers; one that a kill cut off is left out."""
    for file in sorted(folder.glob("*.calls")):
        for line in file.read_bytes().splitlines():
            if line.endswith(b"}"):
                yield orjson.loads(line)
