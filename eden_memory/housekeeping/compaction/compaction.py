"""Make Kafka compact what is forgotten at once, and wait until its segments hold none of it."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

from eden_memory.errors import Conflict, EdenError
from eden_memory.housekeeping.compaction.lowered_topic_store import LoweredTopics
from eden_memory.housekeeping.compaction.segment_topics import Ended, Segments
from eden_memory.kafka import KafkaArguments
from eden_memory.kafka.fencing import markers

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
