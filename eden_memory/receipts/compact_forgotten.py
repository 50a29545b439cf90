"""Compacts the topics of all pipelines, so that Kafka's segments hold nothing of what is forgotten."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from eden_memory.housekeeping.compacted_topics import Compaction, LoweredTopics
from eden_memory.kafka.topics import Topic
from eden_memory.receipts.receipt_store import pipelines
from eden_memory.replay.installation import Installation

TRANSACTIONAL_ID = "compaction"
"""Behind the prefix of topics."""


class SegmentsHold(NamedTuple):
    """Ended records that the segments of a topic hold."""

    topic: str
    records: int
    until: datetime
    """By then Kafka removes them by itself."""


Report = Callable[[Sequence[SegmentsHold]], None]


async def compact_forgotten(at: Installation, report: Report) -> Sequence[SegmentsHold]:
    """Compact, and return what the segments held; `report` is called before, and whenever some of it is removed.

    Conflict while another process compacts, and where a group does not read what compaction would take from it.
    """
    topics: dict[str, Topic] = {}
    for placement in await pipelines(at):
        topics |= {topic.name: topic for topic in at.topics(placement) if topic.compacted}
    readers = at.topics(
        at.settings.placement
    ).readers()  # a stopped reform reads what is left when it goes on
    compaction = Compaction(
        at.kafka,
        LoweredTopics(at.database, at.settings.names, at.admin),
        sorted(topics),
        readers,
        at.settings.kafka.topic_prefix + TRANSACTIONAL_ID,
    )
    now = datetime.now(UTC)

    def held(records: Mapping[str, int]) -> list[SegmentsHold]:
        return [SegmentsHold(name, count, now + topics[name].holds) for name, count in records.items()]

    return held(await compaction.run(lambda records: report(held(records))))
