"""Lag and the state of memory as metrics: one process among all reads them, under kafka_exporter's names."""

import time
from collections.abc import AsyncIterable, Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from eden_memory import metrics
from eden_memory.kafka.groups import GroupLag, LagReader, LagReading
from eden_memory.logs import LibraryLogger
from eden_memory.mongo.leases import MongoLease
from eden_memory.schemas.documents import Snapshot
from eden_memory.stages.leased import Leased

log = LibraryLogger("eden.lag")


Ends = Mapping[TopicPartition, int]


class FirstMemories:
    """Follows the readings of lag; where memory existed at the first of them, it says nothing.

    `groups`: the stages'; `topics`: whole names of those between the chat and memory; `counts`: documents by
    collection.
    """

    def __init__(
        self,
        groups: Collection[str],
        topics: Collection[str],
        counts: Callable[[], Awaitable[Mapping[str, int]]],
    ) -> None:
        self._groups, self._topics, self._counts = groups, topics, counts
        self._settled: Ends | None = None
        """The ends of `topics` at the last reading, if no stage was behind them. (Of the chat's topic, into which
        watermarks go at all times, some stage nearly always is.)"""
        self._counted: Ends | None = None
        self._looked = self._done = False

    async def look(self, reading: LagReading) -> None:
        """Log when the stages have read everything that existed at the last reading, and nothing has come since."""
        if self._done:
            return
        ends = {tp: end for tp, end in reading.ends.items() if tp.topic in self._topics}
        before, self._settled = self._settled, None if self._behind(reading) else ends
        if not self._looked:
            self._looked, self._done = True, bool(sum(await self._formed()))
        elif before == ends != self._counted and any(ends.values()):
            self._counted = ends
            facts, reflections = await self._formed()
            if facts or reflections:
                self._done = True
                log.info("first messages formed", facts=facts, reflections=reflections)

    async def _formed(self) -> tuple[int, int]:
        counts = await self._counts()
        return counts["facts"], counts["reflections"]

    def _behind(self, reading: LagReading) -> bool:
        return any(
            row.lag for row in reading.groups if row.group in self._groups and row.tp.topic in self._topics
        )


EVERY_SECONDS, PAUSE_SECONDS, CENSUS_SECONDS = 10.0, 2.0, 60.0

OF_GROUPS = (
    metrics.GROUP_LAG,
    metrics.GROUP_LAG_SUM,
    metrics.GROUP_LAG_SECONDS,
    metrics.GROUP_OFFSET,
    metrics.GROUP_MEMBERS,
    metrics.TOPIC_OFFSET,
    metrics.TOPIC_OLDEST,
    metrics.TOPIC_PARTITIONS,
)


@dataclass(slots=True)
class Census:
    """Count documents by collection, dead letters, scopes that are due for consolidation, and the sums of usage."""

    counts: Callable[[], Awaitable[Mapping[str, int]]]
    due: Callable[[], AsyncIterable[Snapshot]]
    spent: Callable[[], Awaitable[Mapping[tuple[str, str, str, str], float]]]
    """(period, stage, model, agent) → US dollars."""
    letters: Callable[[], Awaitable[Mapping[str, int]]]
    """Unsettled dead letters by program, also where there is none."""
    _since: dict[tuple[str, int], float] = field(default_factory=dict[tuple[str, int], float])

    async def take(self) -> None:
        """Count again."""
        for collection, number in (await self.counts()).items():
            metrics.MEMORY_DOCUMENTS.labels(collection).set(number)
        for program, number in (await self.letters()).items():
            metrics.DEAD_LETTERS_UNSETTLED.labels(program).set(number)
        sums = await self.spent()
        metrics.SPENT.clear()
        for labels, usd in sums.items():
            metrics.SPENT.labels(*labels).set(usd)
        now = time.monotonic()
        due = [(snapshot.scope_key, snapshot.blob_version) async for snapshot in self.due()]
        self._since = {version: self._since.get(version, now) for version in due}
        metrics.CONSOLIDATION_DUE.set(len(due))
        metrics.CONSOLIDATION_DUE_SECONDS.set(now - min(self._since.values(), default=now))


class LagExport(Leased):
    """Reads every few seconds while the lease is held; a process without the lease shows nothing."""

    def __init__(
        self,
        lease: MongoLease,
        reader: Callable[[], LagReader],
        census: Census,
        first: FirstMemories,
        every: float = EVERY_SECONDS,
    ) -> None:
        super().__init__("lag", lease, self._look, every, PAUSE_SECONDS, self._clear)
        self._new, self._census, self._first = reader, census, first
        self._reader: LagReader | None = None
        self._counted = -CENSUS_SECONDS
        self._shown: LagReading | None = None

    async def _look(self) -> None:
        begun = time.monotonic()
        try:
            reading = await (await self._connected()).read()
        except BaseException:
            await self._disconnect()
            raise
        self._show(reading)
        metrics.LAG_READ_SECONDS.set(time.monotonic() - begun)
        await self._first.look(reading)
        if time.monotonic() - self._counted >= CENSUS_SECONDS:
            await self._census.take()
            self._counted = time.monotonic()

    def _show(self, reading: LagReading) -> None:
        if self._shown is None or reading != replace(self._shown, at=reading.at):
            show(reading)
        metrics.LAG_READ_AT.set(reading.at)
        self._shown = reading

    async def _connected(self) -> LagReader:
        if self._reader is None:
            self._reader = self._new()
            await self._reader.start()
        return self._reader

    async def _disconnect(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            with suppress(KafkaError):
                await reader.close()

    async def _clear(self) -> None:
        """Show nothing: another process shows the figures now."""
        self._shown = None
        for gauge in (*OF_GROUPS, metrics.MEMORY_DOCUMENTS, metrics.DEAD_LETTERS_UNSETTLED, metrics.SPENT):
            gauge.clear()
        for gauge in (metrics.LAG_READ_AT, metrics.CONSOLIDATION_DUE, metrics.CONSOLIDATION_DUE_SECONDS):
            gauge.set(0)
        await self._disconnect()


def show(reading: LagReading) -> None:
    """All figures anew: a group or partition that is gone is shown no more. Nothing is awaited in between."""
    for gauge in OF_GROUPS:
        gauge.clear()
    for tp, end in reading.ends.items():
        metrics.TOPIC_OFFSET.labels(tp.topic, tp.partition).set(end)
        metrics.TOPIC_OLDEST.labels(tp.topic, tp.partition).set(reading.starts[tp])
        metrics.TOPIC_PARTITIONS.labels(tp.topic).inc()
    for group_lag in reading.groups:
        _show_group(group_lag)
    for group, members in reading.members.items():
        metrics.GROUP_MEMBERS.labels(group).set(members)


def _show_group(group_lag: GroupLag) -> None:
    where = (group_lag.group, group_lag.tp.topic, group_lag.tp.partition)
    metrics.GROUP_LAG.labels(*where).set(group_lag.lag)
    metrics.GROUP_LAG_SUM.labels(group_lag.group, group_lag.tp.topic).inc(group_lag.lag)
    if group_lag.seconds is not None:
        metrics.GROUP_LAG_SECONDS.labels(*where).set(group_lag.seconds)
    if group_lag.committed is not None:
        metrics.GROUP_OFFSET.labels(*where).set(group_lag.committed)
