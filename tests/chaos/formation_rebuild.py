"""Memory anew from its three topics alone, after a compaction that could not wait, beside the live collections."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka import TopicPartition

from eden_memory.assembly.mongo_setup import set_up
from eden_memory.forgetting.mark_store import MongoForgetting
from eden_memory.kafka.record import Record
from eden_memory.memory.memory_store import MongoMemoryStore
from eden_memory.names import Names
from eden_memory.processors.atlas_writer import AtlasWriter
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import REGISTRY
from eden_memory.stages.codec import delivery
from tests.chaos.compaction import FILLER_PAUSE, fill, hurry
from tests.chaos.reader import consumer
from tests.chaos.waiting import PATIENCE, NotInTime

PREFIX, LIVE = "rebuilt_", "memory_"
BATCH = 200
COLLECTIONS = ("facts", "reflections", "consolidated", "blobs", "snapshots")
IGNORED = frozenset({"revision", "changed_at", "reset_revision", "applied"})
"""How often, when and in what batches the writer wrote; the applied mark may lag by one decision."""
Rows = Mapping[str, Sequence[Mapping[str, Any]]]
FILLER = b"filler"


async def compacted(bootstrap: str, topics: Sequence[str], partitions: int) -> dict[str, list[Record]]:
    """Every topic's records once no key stands twice in a partition; NotInTime if that does not come about."""
    for topic in topics:
        await asyncio.to_thread(hurry, bootstrap, topic)
    for _ in range(int(PATIENCE / FILLER_PAUSE)):
        await asyncio.sleep(FILLER_PAUSE)
        for topic in topics:
            await fill(bootstrap, topic, partitions)
        found = {topic: await _whole(bootstrap, topic, partitions) for topic in topics}
        if all(map(_once, found.values())):
            return found
    raise NotInTime(f"{', '.join(topics)} were not compacted within {PATIENCE:.0f} s")


def _once(records: Sequence[Record]) -> bool:
    counts = Counter((one.partition, one.key) for one in records if one.key != FILLER)
    return max(counts.values(), default=0) <= 1


async def _whole(bootstrap: str, topic: str, partitions: int) -> list[Record]:
    places = [TopicPartition(topic, number) for number in range(partitions)]
    found: list[Record] = []
    async with consumer(bootstrap, places, "read_uncommitted") as reading:
        await reading.seek_to_beginning(*places)
        ends = await reading.end_offsets(places)
        while any([await reading.position(place) < end for place, end in ends.items()]):
            for records in (await reading.getmany(timeout_ms=500)).values():
                found += map(_record, records)
    return sorted(found, key=lambda one: (one.partition, one.offset))


def _record(one: Any) -> Record:
    return Record(one.topic, one.partition, one.offset, one.key, one.value, tuple(one.headers), one.timestamp)


async def rebuild(database: Any, records: Mapping[str, Sequence[Record]]) -> None:
    """Through the writer's own code, with no mark of what was forgotten: tombstones must say it all."""
    await set_up(database, Names(PREFIX))
    writer = AtlasWriter(
        MongoMemoryStore(database, Names(PREFIX)),
        MongoForgetting(database, Names(PREFIX)),
        clock=lambda: 0.0,
        sleep=_at_once,
    )
    for of_topic in records.values():
        real = [one for one in of_topic if one.key != FILLER]
        for place in range(0, len(real), BATCH):
            await writer([_delivered(one) for one in real[place : place + BATCH]])


async def _at_once(seconds: float) -> None:
    del seconds


def _delivered(one: Record) -> Any:
    return delivery(one, Envelope.of_headers(one.headers), REGISTRY.decode, attempt=1, times=0)


async def rows_of(database: Any, prefix: str) -> dict[str, list[dict[str, Any]]]:
    """All documents of memory, by collection."""
    return {name: await database[prefix + name].find(sort=[("_id", 1)]).to_list() for name in COLLECTIONS}


def differences(live: Rows, rebuilt: Rows) -> list[str]:
    """Documents that differ, or that only one of them has."""
    lines: list[str] = []
    for name in COLLECTIONS:
        pairs: dict[str, list[Any]] = defaultdict(lambda: [None, None])
        for place, rows in enumerate((live[name], rebuilt[name])):
            for row in rows:
                if name == "snapshots" and _says_nothing(row):
                    continue
                pairs[row["_id"]][place] = {key: value for key, value in row.items() if key not in IGNORED}
        lines += [f"{name} {key}: {_said(*pair)}" for key, pair in pairs.items() if pair[0] != pair[1]]
    return lines


def _says_nothing(snapshot: Mapping[str, Any]) -> bool:
    """Whether all that a scope ever had is forgotten: then its tombstones need not make a document anew."""
    had = ("active_facts", "recent_facts", "buffer", "blob", "closed")
    return snapshot.get("active_facts") == 0 and not any(snapshot.get(one) for one in had)


def _said(live: Mapping[str, Any] | None, rebuilt: Mapping[str, Any] | None) -> str:
    if live is None or rebuilt is None:
        return "only rebuilt" if live is None else "only live"
    names = sorted(key for key in {*live, *rebuilt} if live.get(key) != rebuilt.get(key))
    return "; ".join(f"{one} is {_short(live.get(one))}, rebuilt {_short(rebuilt.get(one))}" for one in names)


def _short(value: object) -> str:
    return str(value)[:300]
