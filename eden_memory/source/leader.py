"""Publish records and save the tailer's position, in the order in which things become final.

marks of what is to be forgotten → records → confirmed by Kafka → position → inbox documents erased, while more is
being published (invariant position-after-publish). A record that the next leader repeats is the same record.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from eden_memory import metrics
from eden_memory.kafka.outgoing import Outgoing
from eden_memory.logs import LibraryLogger
from eden_memory.mongo.change_stream import ChangeStream
from eden_memory.mongo.changes import SourceFailed
from eden_memory.schemas.envelope import parse_type
from eden_memory.schemas.events import MessageRecorded
from eden_memory.source.chat_topics import FencedPublisher
from eden_memory.source.inbox_mapping import FORGOTTEN
from eden_memory.source.inbox_store import MongoInbox
from eden_memory.source.messages_store import CollectionReader, source_errors
from eden_memory.source.position_store import MongoPositions, TailerPosition
from eden_memory.source.source_mapping import Mapped, SourceMapping
from eden_memory.stages.dead_letter_store import DeadLetters
from eden_memory.stages.patience import until_done
from eden_memory.tasks import end
from eden_memory.telemetry.spans import sent

log = LibraryLogger("eden.tailer")

MESSAGE = MessageRecorded.__name__
FENCED_SECONDS = 43_200.0
"""By default Kafka forgets a producer after a day in a partition where it writes nothing, its transactional id after
a week, and with them whom it shuts out."""
DEAD_TOGETHER = 1_000
"""Dead letters that are stored at once."""


@dataclass(frozen=True, slots=True)
class Source:
    """The collections that the tailer reads, the store of its position, and the marks of what is to be forgotten."""

    changes: ChangeStream
    messages: CollectionReader
    inbox: MongoInbox
    positions: MongoPositions
    mark: Callable[[Sequence[Outgoing]], Awaitable[None]]
    """Store the marks that these requests to forget ask for."""
    letters: DeadLetters
    topic: str
    """Where messages go, by its whole name."""


class Leader:
    """The tailer that holds the lease of `epoch`: publishes, and makes final what it published."""

    def __init__(
        self,
        epoch: int,
        source: Source,
        mapping: SourceMapping,
        publisher: FencedPublisher,
        commit_seconds: float,
        stopping: asyncio.Event,
    ) -> None:
        self.epoch, self._commit_seconds = epoch, commit_seconds
        self.source, self.mapping, self.publisher = source, mapping, publisher
        self.stopping = stopping
        self._position: TailerPosition | None = None
        self.saved: TailerPosition | None = None
        """The position that the next leader would begin from."""
        self._committed = self._claimed = time.monotonic()
        self._saving: asyncio.Task[None] | None = None
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
        self._claimed = time.monotonic()
        self._position = self.saved = await self.source.positions.claim(self.epoch)
        self.published = self._position is not None and self._position.published

    async def begin(self, phase: str) -> None:
        """Take and save the stream's position of this moment, for a backfill or a merge."""
        now = await self.source.changes.now()
        await self.settle(TailerPosition(now.position, now.version, phase))

    async def publish(self, mapped: Mapped, now: datetime, origin: str, *, more: bool = False) -> None:
        """Send the records of a batch, and store a dead letter for each document that became no record.

        `more`: the records may wait until the publisher is told to ship them, with those of the next calls. What is
        to be forgotten is marked first: readers heed a request while it waits in the inbox, and its mark from then.
        """
        for refused in mapped.unmapped[:3]:
            identity = repr(refused.document["_id"])[:80]
            log.warning(
                "document cannot be used", collection=refused.collection, id=identity, reason=refused.reason
            )
        for start in range(0, len(mapped.unmapped), DEAD_TOGETHER):
            together = mapped.unmapped[start : start + DEAD_TOGETHER]
            letters = [self.mapping.dead_letter(refused, now, self.source.topic) for refused in together]
            await until_done(partial(self.source.letters.put, letters))
        if asked := [record for record in mapped.records if record.topic == FORGOTTEN]:
            with source_errors("marking what is to be forgotten"):
                await self.source.mark(asked)
        begun = time.time_ns()
        await (self.publisher.add if more else self.publisher.send)(mapped.records)
        sent(mapped.records, begun)
        self._carried.extend(mapped.carried)
        self.published |= MESSAGE in _count(origin, mapped)

    async def advance(self, position: TailerPosition) -> None:
        """Move to `position`: everything before it was published. When it is time, make that final beside it."""
        self._position = position
        if self._saving is not None and self._saving.done():
            await self._saved()
        now = time.monotonic()
        if now - self._claimed >= FENCED_SECONDS:
            await self._claim_again()
        elif self._saving is None and now - self._committed >= self._commit_seconds:
            self._saving = asyncio.create_task(self._make_final(position, list(self._carried)))

    async def settle(self, position: TailerPosition | None = None) -> None:
        """Make final what was published: wait for Kafka, save the position, erase the inbox documents carried."""
        self._position = position or self._position
        await self._saved()
        await self._make_final(self._position, list(self._carried))

    async def close(self) -> None:
        """Disconnect; the next leader repeats what is not final yet."""
        if self._saving is not None:
            await end([self._saving])
        await self.publisher.stop()

    async def _claim_again(self) -> None:
        await self.settle()
        await self.publisher.stop()
        await self.claim()

    async def _saved(self) -> None:
        """Wait for the saving that goes on beside the work; raises what it met."""
        saving, self._saving = self._saving, None
        if saving is not None:
            await saving

    async def _make_final(self, position: TailerPosition | None, carried: Sequence[Any]) -> None:
        self._committed = time.monotonic()
        if position is not None:
            position = replace(position, published=self.published)
        if await self.publisher.confirmed():
            metrics.TAILER_COMMITS.inc()
        try:
            await self._save(position, carried)
        except SourceFailed as error:  # it stays behind, which is safe, and is saved the next time
            log.warning("position not saved", reason=error.what)

    async def _save(self, position: TailerPosition | None, carried: Sequence[Any]) -> None:
        if position is not None and position != self.saved:
            await self.source.positions.save(self.epoch, position)
            self.saved = position
        if carried:
            await self.source.inbox.erase(carried)
            del self._carried[: len(carried)]

    def erase_later(self, ids: Sequence[Any]) -> None:
        """Erase inbox documents that are already carried at the next `settle`."""
        self._carried.extend(ids)


def _count(origin: str, mapped: Mapped) -> Counter[str]:
    metrics.TAILER_UNMAPPED.inc(len(mapped.unmapped))
    metrics.TAILER_EMPTY.inc(mapped.empty)
    metrics.TAILER_AUTHORLESS.inc(mapped.authorless)
    for kind, number in mapped.left_out.items():
        metrics.TAILER_LEFT_OUT.labels(kind).inc(number)
    metrics.TAILER_UNDATED.inc(mapped.undated)
    metrics.TAILER_RECORDS.labels(origin, "dead letter").inc(len(mapped.unmapped))
    types = Counter(map(_type, mapped.records))
    kinds: Counter[str] = Counter()
    for type_, number in types.items():
        kinds["tombstone" if type_ is None else parse_type(type_.decode())[0]] += number
    for kind, number in kinds.items():
        metrics.TAILER_RECORDS.labels(origin, kind).inc(number)
    return kinds


def _type(record: Outgoing) -> bytes | None:
    """Return the event's type; None for a tombstone."""
    if record.value is not None:
        for name, value in record.headers:
            if name == "ce_type":
                return value
    return None
