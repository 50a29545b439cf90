"""`eden doctor --canary`: plant a unique word in the running system, forget it, and look for it everywhere."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import uuid4

import httpx2
from aiokafka.errors import CorruptRecordException
from aiokafka.record.memory_records import MemoryRecords
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,  # pyright: ignore[reportPrivateImportUsage]
    ResourceType,  # pyright: ignore[reportPrivateImportUsage]
)
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.api.service import MemoryService
from eden_memory.directory.id_reader_store import IdReader
from eden_memory.doctor.finding import Finding
from eden_memory.kafka import KafkaArguments
from eden_memory.kafka.record import Record
from eden_memory.kafka.topic_admin import TopicAdmin
from eden_memory.kafka.topic_reading import TopicOffsets, reading_partitions
from eden_memory.mongo.ids import encode_id
from eden_memory.receipts.compact_forgotten import compact_forgotten
from eden_memory.replay.installation import Installation, installation
from eden_memory.schemas.documents import DeadLetter, InboxAddedText
from eden_memory.settings import Settings

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


PATIENCE = 120.0

LOOK_SECONDS = 0.5

TEXTS = (
    "My boat is called {word}.",
    "I always prefer to be told about {word} first.",
    "I moved to the harbour of {word} in March 2024.",
    "Please remember that {word} is my favourite place.",
)

RUNNING = "`eden run` must be running (`eden status`)."


class Canary:
    """One word, and the user of its own who says it."""

    def __init__(self, at: Installation, service: MemoryService, *, compact: bool = False) -> None:
        self._at, self._service, self._compact = at, service, compact
        self.word = f"canary{uuid4().hex}"
        self.user = f"eden-canary-{uuid4().hex[:12]}"

    async def run(self) -> list[Finding]:
        """Return what became of the word; it is forgotten in any case."""
        try:
            planted = await self._planted()
        finally:
            await self._service.forget("user", self.user)
        if planted.state == "fail":
            return [planted]
        return [
            planted,
            await self._in_mongodb(),
            await self._at_doors(),
            await self._in_kafka(),
            *([await self._in_segments()] if self._compact else []),
            self._in_logs(),
            *([await self._in_metrics(port)] if (port := self._at.settings.http.port) else []),
        ]

    async def _planted(self) -> Finding:
        messages = [{"role": "user", "content": text.format(word=self.word)} for text in TEXTS]
        await self._service.add(messages, user=self.user)
        await self._dead_letter()
        if not await _within(PATIENCE, self._is_remembered):
            return Finding("canary: planted", "fail", f"nothing was formed in {PATIENCE:.0f} s", RUNNING)
        if not await _within(PATIENCE, self._is_dead_letter):
            return Finding("canary: planted", "fail", f"no dead letter came in {PATIENCE:.0f} s", RUNNING)
        return Finding("canary: planted", "ok", "a unique word was formed, shown, found and dead-lettered")

    async def _dead_letter(self) -> None:
        """Ask for something that cannot be carried out: a text that is none."""
        inbox = self._at.source[self._at.settings.mongodb.prefix + InboxAddedText.COLLECTION]
        await inbox.insert_one({"kind": "added_text", "user_id": self.user, "text": {"odd": self.word}})

    async def _is_dead_letter(self) -> bool:
        letters = self._at.database[self._at.settings.names[DeadLetter.COLLECTION]]
        return await letters.find_one({"named": f"user:{encode_id(self.user)}"}, {"_id": 1}) is not None

    async def _is_remembered(self) -> bool:
        context = await self._service.get_memory_context(None, self.user)
        return self.word in context and bool(await self._found())

    async def _found(self) -> list[str]:
        facts = await self._service.search_facts([self.word], user=self.user)
        return [fact.content for fact in facts if self.word in fact.content]

    async def _in_mongodb(self) -> Finding:
        async def gone() -> bool:
            return not await self._collections() and not await self._is_dead_letter()

        if await _within(PATIENCE, gone):
            return Finding("canary: MongoDB", "ok", "no document of any namespace contains it any more")
        left = [f"{name} ({count})" for name, count in (await self._collections()).items()]
        left += ["dead_letters"] if await self._is_dead_letter() else []
        return Finding("canary: MongoDB", "fail", f"forgotten, and still in {', '.join(left)}", RUNNING)

    async def _collections(self) -> dict[str, int]:
        prefix, word = self._at.settings.mongodb.prefix, self.word.encode()
        found = dict(await in_collections(self._at.database, prefix, word))
        return found | dict(await in_collections(self._at.source, prefix, word))

    async def _at_doors(self) -> Finding:
        shown = self.word in await self._service.get_memory_context(None, self.user)
        if shown or await self._found():
            return Finding("canary: doors", "fail", "the context or a search still shows it")
        return Finding("canary: doors", "ok", "neither the context nor a search shows it")

    async def _records(self) -> InTopics:
        """Look in the topics of all namespaces; without a prefix, in those of the live one."""
        prefix = self._at.settings.kafka.topic_prefix
        names = [topic.name for topic in self._at.topics(self._at.settings.placement)]
        if prefix:
            admin = await asyncio.to_thread(TopicAdmin, self._at.admin)
            names = await asyncio.to_thread(admin.names, prefix)
        return await in_topics(self._at.kafka, names, self.word.encode())

    async def _in_segments(self) -> Finding:
        await compact_forgotten(self._at, lambda _: None)
        folders = await segment_folders(self._at.admin)
        prefix, word = self._at.settings.kafka.topic_prefix, self.word.encode()
        found = await asyncio.to_thread(in_segment_files, folders, prefix, word)
        found = found or (await self._records()).ended
        if found:
            left = ", ".join(f"{name} ({count})" for name, count in found.items())
            return Finding("canary: segments", "fail", f"compacted, and still in {left}")
        looked = "no segment file contains it" if folders else "no record is left (the files are elsewhere)"
        return Finding("canary: segments", "ok", f"compacted: {looked}")

    async def _in_metrics(self, port: int) -> Finding:
        address = f"http://{self._at.settings.http.host}:{port}/metrics"
        try:
            async with httpx2.AsyncClient() as client:
                shown = (await client.get(address)).text
        except httpx2.HTTPError:
            return Finding("canary: metrics", "warn", f"{address} does not answer", RUNNING)
        if self.word in shown or self.user in shown:
            return Finding("canary: metrics", "fail", f"{address} shows it")
        return Finding("canary: metrics", "ok", "no metric contains it")

    async def _in_kafka(self) -> Finding:
        prefix = self._at.settings.kafka.topic_prefix
        if not await _within(PATIENCE, self._is_ended):
            found = await self._records()
            left = ", ".join(f"{name.removeprefix(prefix)} ({n})" for name, n in found.standing.items())
            return Finding("canary: Kafka", "fail", f"records that compaction leaves: {left}")
        ended = sum((await self._records()).ended.values())
        hint = "Within 36 hours, with the settings of topics.yaml." if ended else ""
        return Finding("canary: Kafka", "ok", f"{ended} tombstoned records wait for compaction", hint)

    async def _is_ended(self) -> bool:
        return not (await self._records()).standing

    def _in_logs(self) -> Finding:
        found = in_files(self._at.settings.local.folder, self.word.encode())
        if found:
            return Finding("canary: logs", "fail", f"written to {', '.join(found)}")
        return Finding("canary: logs", "ok", "no log file of the local servers contains it")


async def canary(settings: Settings, agent: str, *, compact: bool = False) -> list[Finding]:
    """Plant and forget a word in the memory of an agent's user; `agent`: typed, or its text.

    `compact`: look in Kafka's files after compaction.
    """
    async with installation(settings) as at:
        agent_id = await IdReader(at.source, at.settings).read("agent", agent)
        async with MemoryService(agent_id, settings=at.settings) as service:
            return await Canary(at, service, compact=compact).run()


async def _within(seconds: float, holds: Callable[[], Awaitable[bool]]) -> bool:
    until = monotonic() + seconds
    while not await holds():
        if monotonic() > until:
            return False
        await asyncio.sleep(LOOK_SECONDS)
    return True


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
