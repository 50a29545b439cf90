"""Looks again for what a receipt says is erased: in every namespace's collections and in the memory topics."""

from collections.abc import AsyncIterator, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.names import Names, Placement
from eden_memory.receipts.receipt import ErasedInMemory, Receipt, StillThere
from eden_memory.replay.installation import Installation
from eden_memory.schemas.documents import (
    DeadLetter,
    Fact,
    Message,
    Namespace,
    Reflection,
    ScopeVectors,
    StoredBlob,
    WindowTexts,
)
from eden_memory.schemas.events import FactChanged, MessageRecorded, ReflectionFormed, ScopeConsolidated
from eden_memory.windows.trigger_store import WITH_TEXTS

if TYPE_CHECKING:
    from eden_memory.kafka import KafkaArguments

Row = dict[str, Any]
TOGETHER = 1_000


@dataclass(frozen=True, slots=True)
class Looked:
    """Result of looking again."""

    still_there: tuple[StillThere, ...]
    on_disk: int | None
    """Records that a tombstone has ended and compaction has not removed yet; None: the topics were not read."""


class LookingAgain:
    """Reads the collections and topics of one installation."""

    def __init__(self, at: Installation) -> None:
        self._at = at

    async def at(self, receipt: Receipt) -> Looked:
        """Look for everything that a receipt names, in namespaces that came later, too."""
        found, on_disk = await self.in_memory(receipt), 0
        for memory in receipt.memories:
            there, ended = await self._in_topics(memory)
            found += there
            on_disk += ended
        return Looked(tuple(found), on_disk)

    async def in_memory(self, receipt: Receipt) -> list[StillThere]:
        """Look in the collections alone."""
        namespaces = await self._at.namespaces.all()
        found = [
            there
            for memory in receipt.memories
            for placement in _placements(memory.pipeline, namespaces)
            async for there in self._in_collections(names_of(self._at, placement), memory)
        ]
        collection = self._at.settings.names[DeadLetter.COLLECTION]
        erased = [name for memory in receipt.memories for name in memory.dead_letters]
        for start in range(0, len(erased), TOGETHER):
            there = await self._at.letters.there(erased[start : start + TOGETHER])
            found += [StillThere(collection, name) for name in there]
        return found

    async def _in_collections(self, names: Names, memory: ErasedInMemory) -> AsyncIterator[StillThere]:
        database = self._at.database
        gone: list[tuple[str, Iterable[str], Row]] = [
            (Fact.COLLECTION, map(_entity, memory.facts), {}),
            (Reflection.COLLECTION, map(_entity, memory.reflections), {}),
            (StoredBlob.COLLECTION, memory.blobs, {"gone": False}),
            (Message.COLLECTION, memory.messages, {"text": {"$ne": None}, "forgotten": True}),
        ]
        for collection, ids, more in gone:
            async for name in _among(database, names[collection], ids, more):
                yield StillThere(names[collection], name)
        for name in await _in_windows(database, names[WindowTexts.COLLECTION], memory.messages):
            yield StillThere(names[WindowTexts.COLLECTION], name)
        for collection in (Fact.COLLECTION, Reflection.COLLECTION):
            async for name in _among(database, names[collection], memory.messages, {}, "message_ids"):
                yield StillThere(names[collection], name)
        vectors, facts = names[ScopeVectors.COLLECTION], map(_entity, memory.facts)
        async for name in _among(database, vectors, facts, {}, "fact_ids"):
            yield StillThere(vectors, name)

    async def _in_topics(self, memory: ErasedInMemory) -> tuple[list[StillThere], int]:
        """Return the keys whose newest record has a value, and how many older records are on the disk still."""
        topics = self._at.topics(Placement(memory.pipeline, memory.pipeline))
        wanted = {topics.topic_of(event): keys for event, keys in _keys(memory).items()}
        still: list[StillThere] = []
        ended = 0
        for topic, keys in wanted.items():
            newest, values = await _newest_of(self._at.kafka, topic, keys) if keys else ({}, 0)
            left = [key for key, has_value in newest.items() if has_value]
            still += [StillThere(topic, key) for key in left]
            ended += values - len(left)
        return still, ended


def names_of(at: Installation, placement: Placement) -> Names:
    """Return the collections of a placement."""
    return at.settings.model_copy(update={"placement": placement}).names


def _placements(pipeline: str, namespaces: Iterable[Namespace]) -> list[Placement]:
    """Return the memories of a pipeline that are not dropped, also those that were left half filled."""
    memories = {
        namespace.id
        for namespace in namespaces
        if namespace.pipeline == pipeline and namespace.state != "dropped"
    }
    return [Placement(name, pipeline) for name in sorted({pipeline, *memories})]


def _keys(memory: ErasedInMemory) -> dict[type[Any], set[str]]:
    """Return the keys of every record that was erased, by event."""
    reflections = {
        _entity(name) if version == 1 else f"{_entity(name)}@{version}"
        for name in memory.reflections
        for version in range(1, _version(name) + 1)
    }
    facts = {
        f"{_entity(name)}@{version}" for name in memory.facts for version in range(1, _version(name) + 1)
    }
    return {
        FactChanged: facts,
        ReflectionFormed: reflections,
        ScopeConsolidated: set(memory.blobs),
        MessageRecorded: set(memory.messages),
    }


def _entity(name: str) -> str:
    return name.rpartition("@")[0]


def _version(name: str) -> int:
    return int(name.rpartition("@")[2])


async def _among(
    database: AsyncDatabase[Row], collection: str, ids: Iterable[str], more: Row, field: str = "_id"
) -> AsyncIterator[str]:
    wanted = list(ids)
    for start in range(0, len(wanted), TOGETHER):
        some = {field: {"$in": wanted[start : start + TOGETHER]}, **more}
        async for row in database[collection].find(some, {"_id": 1}):
            yield row["_id"]


async def _in_windows(database: AsyncDatabase[Row], collection: str, messages: Collection[str]) -> list[str]:
    """Return the messages whose text stands in a window."""
    wanted, found = list(messages), list[str]()
    for start in range(0, len(wanted), TOGETHER):
        some = wanted[start : start + TOGETHER]
        written = {"$elemMatch": {"message_id": {"$in": some}, "text": {"$ne": None}}}
        held: Row = {"$or": [{part: written} for part in WITH_TEXTS]}
        async for row in database[collection].find(held, dict.fromkeys(WITH_TEXTS, 1)):
            found += [
                message["message_id"]
                for part in WITH_TEXTS
                for message in row.get(part, ())
                if message["message_id"] in some and message.get("text") is not None
            ]
    return list(dict.fromkeys(found))


async def _newest_of(
    kafka: "KafkaArguments", topic: str, keys: Collection[str]
) -> tuple[dict[str, bool], int]:
    """Return for each key whether its newest record has a value, and how many records of them have one."""
    from eden_memory.kafka.topic_reading import TopicOffsets, reading_partitions  # noqa: PLC0415 - the extra `run`

    async with TopicOffsets(kafka, [topic]) as offsets:
        partitions = offsets.partitions
    newest: dict[str, bool] = {}
    values = 0
    async with reading_partitions(kafka, partitions) as reader:
        async for batch in reader.batches():
            for record in batch:
                if (key := (record.key or b"").decode(errors="replace")) in keys:
                    newest[key] = record.value is not None
                    values += record.value is not None
    return newest, values
