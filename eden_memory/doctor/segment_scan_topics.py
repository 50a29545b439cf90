"""Looks for a word in the files of Kafka's segments: every record that is there, whatever readers still see of it."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from aiokafka.errors import CorruptRecordException
from aiokafka.record.memory_records import MemoryRecords
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,  # pyright: ignore[reportPrivateImportUsage]
    ResourceType,  # pyright: ignore[reportPrivateImportUsage]
)

SECONDS = 10.0
LOG_DIRECTORIES = ("log.dirs", "log.dir")


async def segment_folders(admin: Mapping[str, Any]) -> list[Path]:
    """Return the brokers' log directories, as far as they are on this machine."""
    return [path for path in map(Path, await asyncio.to_thread(_named, admin)) if path.is_dir()]


def _named(config: Mapping[str, Any]) -> set[str]:
    admin: Any = AdminClient({**config, "log_level": 0})
    named: set[str] = set()
    with contextlib.suppress(KafkaException):
        brokers = [
            ConfigResource(ResourceType.BROKER, str(number))
            for number in admin.list_topics(timeout=SECONDS).brokers
        ]
        for answer in admin.describe_configs(brokers).values():
            values = [answer.result(SECONDS)[name].value for name in LOG_DIRECTORIES]
            named |= {path.strip() for path in (values[0] or values[1] or "").split(",") if path.strip()}
    return named


def in_segment_files(folders: Sequence[Path], prefix: str, word: bytes) -> Mapping[str, int]:
    """Return how often files of topics whose name begins so hold the word, compressed or not, by topic."""
    found: Counter[str] = Counter()
    for file in (path for folder in folders for path in folder.glob(f"{prefix}*-*/*")):
        with contextlib.suppress(FileNotFoundError):  # a segment that Kafka deletes meanwhile
            content = file.read_bytes()
            holds = content.count(word)
            if ".log" in file.name:
                holds = max(holds, sum(word in part for part in _parts(content)))
            found[file.parent.name.rpartition("-")[0]] += holds
    return +found


def _parts(content: bytes) -> Iterator[bytes]:
    """Yield keys, values and headers of all records; a batch that is not written whole yet ends it."""
    batches: Any = MemoryRecords(content)
    with contextlib.suppress(CorruptRecordException):
        while batches.has_next() and (batch := batches.next_batch()) is not None:
            for record in batch:
                parts = (record.key, record.value, *(value for _, value in record.headers))
                yield from (part for part in parts if part)
