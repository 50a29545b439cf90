"""Make Kafka compact what is forgotten at once, and wait until its segments hold none of it."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from time import monotonic
from typing import Any

from aiokafka import TopicPartition
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.write_concern import WriteConcern

from eden_memory.errors import Conflict, EdenError
from eden_memory.kafka import KafkaArguments
from eden_memory.kafka.fencing import markers
from eden_memory.kafka.groups import GroupAdmin
from eden_memory.kafka.topic_admin import TopicAdmin
from eden_memory.kafka.topic_reading import Offsets, TopicOffsets, reading_partitions
from eden_memory.logs import LibraryLogger
from eden_memory.mongo.leases import MongoLease
from eden_memory.names import Names
from eden_memory.schemas.documents import LoweredTopic

Row = dict[str, Any]
LEASE, LEASE_SECONDS, BUSY_SECONDS = "compaction", 15.0, 2.0
LOWERED = {
    "segment.ms": "1000",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "1000",
    "min.cleanable.dirty.ratio": "0.0",
    "file.delete.delay.ms": "1000",
}
"""Settings that make Kafka compact a topic at once; deleted segments leave the disk after a second."""
log = LibraryLogger("eden.compaction")


class LoweredTopics:
    """One installation's topics whose settings are lowered; who changes them holds the lease."""

    def __init__(self, database: AsyncDatabase[Row], names: Names, admin: Mapping[str, Any]) -> None:
        self._lease = MongoLease(database[names["leases"]], LEASE, LEASE_SECONDS)
        durable = database.with_options(write_concern=WriteConcern("majority", j=True))
        self._lowered = durable[names[LoweredTopic.COLLECTION]]
        self._admin = admin

    @asynccontextmanager
    async def alone(self) -> AsyncGenerator[None]:
        """Hold the lease; Conflict where another process has it. A killed one's runs out."""
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(BUSY_SECONDS):
                    await stack.enter_async_context(self._lease.held())
            except TimeoutError:
                raise Conflict(
                    "`eden forget --compact` is running", "It restores the topics at its end; try again then."
                ) from None
            yield

    @asynccontextmanager
    async def lowered(self, topics: Iterable[str]) -> AsyncGenerator[None]:
        """Lower the settings of topics inside, and restore them whatever happens; the lease is held."""
        names, admin = list(topics), await asyncio.to_thread(TopicAdmin, self._admin)
        before = await asyncio.to_thread(admin.overrides, names)
        now = datetime.now(UTC)
        for name in names:
            kept = {setting: before[name].get(setting) for setting in LOWERED}
            row = LoweredTopic(_id=name, settings=kept, lowered_at=now).stored()
            await self._lowered.replace_one({"_id": name}, row, upsert=True)
        try:
            await asyncio.to_thread(admin.configure, dict.fromkeys(names, LOWERED))
            yield
        finally:
            await self.restore()

    async def restore(self) -> list[str]:
        """Restore what a compaction has lowered, also one that was killed; return the topics. The lease is held."""
        rows = [LoweredTopic.model_validate(row) async for row in self._lowered.find()]
        if not rows:
            return []
        admin = await asyncio.to_thread(TopicAdmin, self._admin)
        there = set(await asyncio.to_thread(admin.names))
        wanted = {row.id: row.settings for row in rows if row.id in there}
        await asyncio.to_thread(admin.configure, wanted)
        await self._lowered.delete_many({"_id": {"$in": [row.id for row in rows]}})
        log.info("the settings of compacted topics are restored", topics=len(wanted))
        return sorted(wanted)

    async def restore_left(self) -> list[str]:
        """Restore what a killed compaction has left; nothing while one is running. Conflict then."""
        if await self._lowered.find_one() is None:
            return []
        async with self.alone():
            return await self.restore()


Ended = Mapping[TopicPartition, Sequence[int]]
"""Offsets of ended records by partition, in order."""


class Segments:
    """The segments of some topics (whole names), as a client sees them."""

    def __init__(self, kafka: KafkaArguments, topics: Sequence[str]) -> None:
        self._kafka, self._topics = kafka, topics

    async def ended(self) -> Ended:
        """Read all records, and return those with a value that a later record of their key has ended."""
        async with TopicOffsets(self._kafka, self._topics) as offsets:
            partitions = offsets.partitions
        found = {tp: await self._ended_in(tp) for tp in partitions}
        return {tp: offsets for tp, offsets in found.items() if offsets}

    async def _ended_in(self, tp: TopicPartition) -> list[int]:
        """Keys are held as hashes: a partition may have millions."""
        newest: dict[bytes, int | None] = {}
        ended: list[int] = []
        async with reading_partitions(self._kafka, [tp]) as reader:
            async for batch in reader.batches():
                for record in batch:
                    key = blake2b(record.key or b"", digest_size=8).digest()
                    before = newest.get(key)
                    if before is not None:
                        ended.append(before)
                    newest[key] = None if record.value is None else record.offset
        return sorted(ended)

    async def still_there(self, ended: Ended) -> Ended:
        """Return those of the records that are there."""
        left = {tp: await self._left_in(tp, offsets) for tp, offsets in ended.items()}
        return {tp: offsets for tp, offsets in left.items() if offsets}

    async def _left_in(self, tp: TopicPartition, ended: Sequence[int]) -> Sequence[int]:
        """While the first is there, the partition is not compacted yet, and no more is read."""
        wanted, left = set(ended), list[int]()
        async with reading_partitions(self._kafka, [tp], {tp: ended[0]}) as reader:
            async for batch in reader.batches():
                if not left and batch[0].offset == ended[0]:
                    return ended
                left += [record.offset for record in batch if record.offset in wanted]
        return left

    async def ends(self) -> Offsets:
        """Return the offset behind the last record of each partition."""
        async with TopicOffsets(self._kafka, self._topics) as offsets:
            return await offsets.ends()

    async def behind(self, readers: Mapping[str, Collection[str]], ends: Offsets) -> list[str]:
        """Return `group: topic` where records before these ends wait for a group that has read this topic before."""
        found: list[str] = []
        async with GroupAdmin(self._kafka) as admin:
            for group, topics in sorted(readers.items()):
                committed = await admin.committed(group)
                waiting = {
                    tp: at for tp, at in committed.items() if tp.topic in topics and at < ends.get(tp, 0)
                }
                found += [f"{group}: {topic}" for topic in sorted(await self._with_records(waiting, ends))]
        return found

    async def _with_records(self, waiting: Offsets, ends: Offsets) -> set[str]:
        """Return the topics with a record between these offsets: markers of transactions are none."""
        if not waiting:
            return set()
        async with reading_partitions(self._kafka, list(waiting), waiting) as reader:
            found = [
                (TopicPartition(record.topic, record.partition), record.offset)
                async for batch in reader.batches()
                for record in batch
            ]
        return {tp.topic for tp, offset in found if offset < ends[tp]}


READ_SECONDS, LOOK_SECONDS = 120.0, 1.0
"""How long groups may take to read what was written before, and between two looks."""
ROLL_SECONDS = 1.5
"""Between two markers: longer than the lowered `segment.ms`, so that each lets the segment before it roll."""
DELETE_SECONDS = 2.0
"""Until Kafka has deleted the files of the compacted segments, with the lowered `file.delete.delay.ms`."""
STILL_SECONDS = 900.0
"""Without any progress, the cleaner of the brokers counts as broken."""
Report = Callable[[Mapping[str, int]], None]
"""Ended records that the segments still hold, by topic."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """One compaction of compacted topics (whole names); `readers`: the topics of the groups to wait for."""

    kafka: KafkaArguments
    lowered: LoweredTopics
    topics: Sequence[str]
    readers: Mapping[str, Sequence[str]]
    transactional_id: str

    async def run(self, report: Report) -> Mapping[str, int]:
        """Compact, and return how many ended records have left the disk, by topic.

        Conflict while another process compacts, and where a group does not read what compaction would take from it.
        """
        async with self.lowered.alone():
            await self.lowered.restore()
            await self._until_read()
            ended = await Segments(self.kafka, self.topics).ended()
            report(by_topic(ended))
            if ended:
                async with self.lowered.lowered({tp.topic for tp in ended}):
                    await self._until_gone(ended, report)
        return by_topic(ended)

    async def _until_read(self) -> None:
        """A group that is behind would miss the records that compaction removes."""
        until, segments = monotonic() + READ_SECONDS, Segments(self.kafka, self.topics)
        ends = await segments.ends()
        while behind := await segments.behind(self.readers, ends):
            if monotonic() > until:
                raise Conflict(
                    f"not read to the end yet: {', '.join(behind)}",
                    "Compaction would take records from these groups. Start `eden run`, wait until they have caught "
                    "up (`eden status`), and try again.",
                )
            await asyncio.sleep(LOOK_SECONDS)

    async def _until_gone(self, ended: Ended, report: Report) -> None:
        until = monotonic() + STILL_SECONDS
        topics = sorted({tp.topic for tp in ended})
        segments = Segments(self.kafka, topics)
        async with markers(self.kafka, self.transactional_id, topics) as append:
            while ended:
                await append()
                await asyncio.sleep(ROLL_SECONDS)
                left = await segments.still_there(ended)
                if by_topic(left) != by_topic(ended):
                    until = monotonic() + STILL_SECONDS
                    report(by_topic(left))
                elif monotonic() > until:
                    raise EdenError(
                        f"Kafka has not compacted {', '.join(by_topic(left))} for {STILL_SECONDS / 60:.0f} minutes",
                        "Check that the brokers' log cleaner runs (log.cleaner.enable), and try again.",
                    )
                ended = left
            await asyncio.sleep(DELETE_SECONDS)


def by_topic(ended: Ended) -> Mapping[str, int]:
    """Return how many records have ended, by topic."""
    counts = Counter[str]()
    for tp, offsets in ended.items():
        counts[tp.topic] += len(offsets)
    return dict(sorted(counts.items()))
