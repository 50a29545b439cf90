"""Looks for words in everything that the program stores: each document's bytes, each record, files of logs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.kafka import KafkaArguments
from eden_memory.kafka.record import Record
from eden_memory.kafka.topic_reading import TopicOffsets, reading_partitions

RAW = CodecOptions(document_class=RawBSONDocument)
LOGS = ("*.log", "*/server.log*")


@dataclass(frozen=True, slots=True)
class InTopics:
    """Records that hold a word, by topic."""

    standing: Mapping[str, int]
    """Those that compaction leaves, or that only age removes."""
    ended: Mapping[str, int]
    """Those that a later record of their key ends: compaction removes them."""


async def in_collections(
    database: AsyncDatabase[dict[str, Any]], prefix: str, word: bytes
) -> Mapping[str, int]:
    """Return how many documents hold the word, by collection, in all collections whose name begins so."""
    found: Counter[str] = Counter()
    for name in sorted(await database.list_collection_names()):
        if name.startswith(prefix):
            documents: Any = database.get_collection(name, codec_options=RAW)
            async for document in documents.find():
                found[name] += word in document.raw
    return +found


async def in_topics(kafka: KafkaArguments, topics: Sequence[str], word: bytes) -> InTopics:
    """Return the records that hold the word in key, value or headers, uncommitted transactions included."""
    newest: dict[tuple[str, int, bytes], bool] = {}
    ended: Counter[str] = Counter()
    standing: Counter[str] = Counter()
    async with TopicOffsets(kafka, topics) as offsets:
        partitions = offsets.partitions
    async with reading_partitions(kafka, partitions) as reader:
        async for batch in reader.batches():
            for record in batch:
                holds = _holds(record, word)
                if record.key is None:
                    standing[record.topic] += holds
                    continue
                place = (record.topic, record.partition, record.key)
                ended[record.topic] += newest.get(place, False)
                newest[place] = holds
    for (topic, _, _), holds in newest.items():
        standing[topic] += holds
    return InTopics(+standing, +ended)


def in_files(folder: Path, word: bytes) -> Mapping[str, int]:
    """Return the log files below a folder that hold the word."""
    files = [path for pattern in LOGS for path in folder.glob(pattern)]
    found = {str(path): path.read_bytes().count(word) for path in files}
    return {path: count for path, count in found.items() if count}


def _holds(record: Record, word: bytes) -> bool:
    parts = (record.key, record.value, *(value for _, value in record.headers))
    return any(word in part for part in parts if part)
