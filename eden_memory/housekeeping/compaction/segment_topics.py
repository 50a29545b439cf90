"""Records that later ones of their keys have ended, and that Kafka's segments still hold."""

from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b

from aiokafka import TopicPartition

from eden_memory.kafka import KafkaArguments
from eden_memory.kafka.groups import GroupAdmin
from eden_memory.kafka.topic_reading import Offsets, TopicOffsets, reading_partitions

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
