"""Compare a broker's topics with what keys and retention rely on: at the start of `eden run`, and while it runs."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eden_memory.errors import EdenError
from eden_memory.kafka.topic_admin import TopicAdmin
from eden_memory.kafka.topics import BrokerTopic, Topic, Topics
from eden_memory.stages.partition_count_store import PartitionCount, PartitionCounts
from eden_memory.stages.patience import until_done
from eden_memory.stages.process import State
from eden_memory.tasks import answering_within, run_until_first, until_tick

EVERY_SECONDS = 20.0
AGAIN_SECONDS = 3.0
"""Seconds before a difference is believed: a broker that has just started may not know everything yet."""
ANSWER_SECONDS = 5.0
"""Seconds to wait for a broker's first answer: a thread that waits for it delays a stop."""
SHOWN = 3
"""Most topics that an error names."""


@dataclass(frozen=True, slots=True)
class TopicProblem:
    """Why `eden run` must not work with a topic, and the way out."""

    what: str
    way_out: str


class TopicsCheck:
    """A part of a process that ends it when a topic is changed so that keys would move or records be lost.

    A topic that is missing is not its business. `admin`: connection arguments of librdkafka.
    """

    name = "topics"

    def __init__(self, admin: Mapping[str, Any], topics: Topics, counts: PartitionCounts) -> None:
        self._admin, self._topics, self._counts = admin, topics, counts
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Check until `stop`; EdenError if a topic was changed."""
        await run_until_first(self._looks(), self._stopping)

    def stop(self) -> None:
        """End `run`."""
        self._stopping.set()

    def state(self) -> State:
        """Always ready: what the check finds ends the process."""
        return State(True, "all as they were created")

    async def look(self, *, record: bool = True) -> None:
        """Raise EdenError for a topic that must not be used; record the partitions of topics seen first."""
        with answering_within(ANSWER_SECONDS):
            found = await asyncio.to_thread(lambda: TopicAdmin(self._admin).standing(self._topics))
        counts = await self._counts.all()
        if problems := topic_problems(self._topics, found, counts):
            raise refusal_of(problems)
        for topic in self._topics:
            if record and topic.compacted and topic.name in found and topic.name not in counts:
                await self._counts.record(topic.name, topic.partitions, topic.partitions)

    async def accept(self) -> list[str]:
        """Record the topics as they are, so that added partitions stay unused; return what was added where."""
        found = await asyncio.to_thread(lambda: TopicAdmin(self._admin).standing(self._topics))
        counts, added = await self._counts.all(), list[str]()
        for topic in self._topics:
            there = found.get(topic.name)
            if there is None or not topic.compacted:
                continue
            count = counts.get(topic.name, PartitionCount(topic.partitions, topic.partitions))
            if there.partitions < count.used:
                continue
            if there.partitions > count.known:
                added.append(f"{topic.name}: keys stay in its first {count.used} partitions")
            await self._counts.record(topic.name, count.used, there.partitions)
        return added

    async def _looks(self) -> None:
        while True:
            await asyncio.sleep(until_tick(EVERY_SECONDS))
            try:
                await until_done(self.look, doing=self.name)
            except EdenError:
                await asyncio.sleep(AGAIN_SECONDS)
                await until_done(self.look, doing=self.name)


def topic_problems(
    topics: Iterable[Topic], found: Mapping[str, BrokerTopic], counts: Mapping[str, PartitionCount]
) -> list[TopicProblem]:
    """Return the reasons why existing topics must not be used."""
    return [
        problem
        for topic in topics
        if topic.name in found
        for problem in _problems(topic, found[topic.name], counts.get(topic.name))
    ]


def refusal_of(problems: Sequence[TopicProblem]) -> EdenError:
    """Return the error that names them, with the ways out."""
    what = "; ".join(problem.what for problem in problems[:SHOWN])
    more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
    return EdenError(what + more, " ".join(dict.fromkeys(problem.way_out for problem in problems)))


def _problems(topic: Topic, found: BrokerTopic, count: PartitionCount | None) -> Iterator[TopicProblem]:
    if topic.compacted:
        yield from _of_partitions(topic, found.partitions, count)
    policy = found.config.get("cleanup.policy")
    if policy is None:
        return
    declared, now = (set(value.split(",")) for value in (topic.config["cleanup.policy"], policy))
    unerased = "compact" in declared - now
    if unerased or "delete" in now - declared:
        why = "what is forgotten would stay in it" if unerased else "Kafka would delete records that are kept"
        yield TopicProblem(
            f"{topic.name} has cleanup.policy {policy}, not {topic.config['cleanup.policy']}: {why}",
            "`eden topics apply` restores the setting.",
        )


def _of_partitions(topic: Topic, found: int, count: PartitionCount | None) -> Iterator[TopicProblem]:
    if count is None and found != topic.partitions:
        yield TopicProblem(
            f"{topic.name} has {found} partitions, not {topic.partitions}",
            f"If topics were created with {found}, set EDEN_KAFKA_PARTITIONS={found}; if partitions were added "
            f"later, `eden topics apply` lets those stay unused.",
        )
    elif count is not None and found > count.known:
        yield TopicProblem(
            f"{topic.name} has {found} partitions and had {count.known}: with those that were added, keys and "
            "sessions would move away from what is stored of them",
            "Kafka cannot take partitions away: run `eden topics apply`, which lets the added ones stay unused, and "
            "start again.",
        )
    elif count is not None and found < count.used:
        yield TopicProblem(
            f"{topic.name} has {found} partitions and had {count.used}: it was created anew",
            f"Delete it, and create it with `EDEN_KAFKA_PARTITIONS={count.used} eden topics apply`.",
        )
