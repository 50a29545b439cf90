"""Publish records and save the tailer's position, in the order in which things become final.

records → Kafka's commit → position → inbox documents erased. If the process dies in between, the next leader
repeats everything from the position; a repeated record is the same record.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import structlog

from eden_memory import metrics
from eden_memory.kafka.outgoing import Outgoing
from eden_memory.mongo.change_stream import ChangeStream
from eden_memory.mongo.changes import SourceFailed
from eden_memory.schemas.envelope import parse_type
from eden_memory.schemas.events import MessageRecorded
from eden_memory.source.chat_topics import TransactionalPublisher
from eden_memory.source.inbox_store import MongoInbox
from eden_memory.source.messages_store import CollectionReader
from eden_memory.source.position_store import MongoPositions, TailerPosition
from eden_memory.source.source_mapping import Mapped, SourceMapping, Unmapped

log = structlog.get_logger("eden.tailer")

MESSAGE = MessageRecorded.__name__
DEAD_TOGETHER = 10
"""Originals of dead letters held in memory at once: each may have 16 MB."""


@dataclass(frozen=True, slots=True)
class Source:
    """The collections that the tailer reads, and the store of its position."""

    changes: ChangeStream
    messages: CollectionReader
    inbox: MongoInbox
    positions: MongoPositions


class Leader:
    """The tailer that holds the lease of `epoch`: publishes, and makes final what it published."""

    def __init__(
        self,
        epoch: int,
        source: Source,
        mapping: SourceMapping,
        publisher: TransactionalPublisher,
        commit_seconds: float,
        stopping: asyncio.Event,
    ) -> None:
        self.epoch, self._commit_seconds = epoch, commit_seconds
        self.source, self.mapping, self.publisher = source, mapping, publisher
        self.stopping = stopping
        self._position: TailerPosition | None = None
        self.saved: TailerPosition | None = None
        """The position that the next leader would begin from."""
        self._committed = time.monotonic()
        self._carried: list[Any] = []
        self.published = False
        """Whether any message of this source was published, now or before."""
        self.published_until: datetime | None = None
        """Everything in the stream up to this time is published."""

    @property
    def began(self) -> bool:
        """Whether there is a position to go on from."""
        return self._position is not None

    @property
    def position(self) -> TailerPosition:
        """How far this leader has come; RuntimeError before `begin` at the first start."""
        if self._position is None:
            raise RuntimeError("a position is taken before anything is read")
        return self._position

    async def claim(self) -> None:
        """Shut out older leaders, in Kafka and in MongoDB, and take over the position."""
        await self.publisher.start()
        self._position = self.saved = await self.source.positions.claim(self.epoch)
        self.published = self._position is not None and self._position.published

    async def begin(self, phase: str) -> None:
        """Take and save the stream's position of this moment, for a backfill or a merge."""
        now = await self.source.changes.now()
        await self.settle(TailerPosition(now.position, now.version, phase))

    async def publish(self, mapped: Mapped, now: datetime, origin: str) -> None:
        """Send the records of a batch; send the documents that became no record, whole, to the dead letters."""
        for refused in mapped.unmapped[:3]:
            identity = repr(refused.document["_id"])[:80]
            log.warning(
                "document cannot be used", collection=refused.collection, id=identity, reason=refused.reason
            )
        for start in range(0, len(mapped.unmapped), DEAD_TOGETHER):
            await self._bury(mapped.unmapped[start : start + DEAD_TOGETHER], now)
        await self.publisher.send(mapped.records)
        self._carried.extend(mapped.carried)
        self.published |= MESSAGE in _count(origin, mapped)

    async def _bury(self, unmapped: Sequence[Unmapped], now: datetime) -> None:
        originals = await self.source.messages.originals([refused.document["_id"] for refused in unmapped])
        await self.publisher.send(self.mapping.dead(unmapped, originals, now))

    async def advance(self, position: TailerPosition) -> None:
        """Move to `position`: everything before it was published. Make that final when it is time."""
        self._position = position
        if time.monotonic() - self._committed >= self._commit_seconds:
            await self.settle()

    async def settle(self, position: TailerPosition | None = None) -> None:
        """Make final what was published: commit, save the position, erase the inbox documents carried."""
        self._position = position or self._position
        if self.publisher.dirty:
            await self.publisher.commit()
            metrics.TAILER_COMMITS.inc()
        self._committed = time.monotonic()
        try:
            await self._save()
        except SourceFailed as error:  # it stays behind, which is safe, and is saved the next time
            log.warning("position not saved", reason=error.what)

    async def _save(self) -> None:
        if self._position is not None:
            self._position = replace(self._position, published=self.published)
        if self._position is not None and self._position != self.saved:
            await self.source.positions.save(self.epoch, self._position)
            self.saved = self._position
        if self._carried:
            await self.source.inbox.erase(self._carried)
            self._carried.clear()

    def erase_later(self, ids: Sequence[Any]) -> None:
        """Erase inbox documents that are already carried at the next `settle`."""
        self._carried.extend(ids)


def _count(origin: str, mapped: Mapped) -> Counter[str]:
    metrics.TAILER_UNMAPPED.inc(len(mapped.unmapped))
    metrics.TAILER_EMPTY.inc(mapped.empty)
    metrics.TAILER_AUTHORLESS.inc(mapped.authorless)
    metrics.TAILER_RECORDS.labels(origin, "dead letter").inc(len(mapped.unmapped))
    kinds = Counter(map(_kind, mapped.records))
    for kind, number in kinds.items():
        metrics.TAILER_RECORDS.labels(origin, kind).inc(number)
    return kinds


def _kind(record: Outgoing) -> str:
    """Return the event's name, or `tombstone`."""
    if record.value is None:
        return "tombstone"
    types = (value for name, value in record.headers if name == "ce_type")
    return parse_type(next(types).decode())[0]
