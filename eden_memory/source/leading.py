"""One leadership of the tailer: its place in the stream, and the order in which things become final.

records → Kafka's commit → position → inbox documents erased. Whatever dies in between is done again, from the
position, by the next leader; a record that comes twice is the same record.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol

import structlog

from eden_memory import metrics
from eden_memory.kafka.outgoing import Outgoing
from eden_memory.mongo.changes import ChangeBatch, ChangeEvent, Document, DocumentPage, SourceFailed
from eden_memory.schemas.envelope import parse_type
from eden_memory.schemas.events import MessageRecorded
from eden_memory.source.chat_topics import TransactionalPublisher
from eden_memory.source.mapped import Mapped, Unmapped
from eden_memory.source.message_mapping import Origin, Reason
from eden_memory.source.position import Position, RereadResult


class ChangeSource(Protocol):
    """The application's database, as the tailer needs it."""

    async def now(self) -> ChangeBatch:
        """The stream's position at this moment, without changes: everything older is before it."""
        ...

    async def next(self, after: str) -> ChangeBatch:
        """The batch after a position; SourceFailed, PositionLost."""
        ...

    async def close(self) -> None:
        """Let go of the server's cursor."""
        ...


class Messages(Protocol):
    """The application's messages collection, read as a whole."""

    async def empty(self) -> bool:
        """Whether there is no document, or no collection."""
        ...

    async def count(self) -> int:
        """About how many messages there are (from `since` on)."""
        ...

    def pages(self, after: Any, session: Any = None) -> AsyncGenerator[DocumentPage, None]:
        """All messages (of one session, if one is named) in (created_at, _id) order, from a page's `last` on."""
        ...

    async def originals(self, ids: Sequence[Any]) -> Sequence[Document]:
        """Whole documents by id, for dead letters; those that are gone are left out."""
        ...

    async def existing(self, encoded_ids: Sequence[str]) -> set[str]:
        """Which of these typed ids still have a document."""
        ...


class Inbox(Protocol):
    """`memory_inbox`: what applications asked for, erased once carried."""

    async def waiting(self) -> Sequence[Document]:
        """All documents there, oldest first."""
        ...

    async def erase(self, ids: Iterable[Any]) -> None:
        """Remove carried documents."""
        ...


class Positions(Protocol):
    """Where a tailer's position is kept; only the holder of the newest lease can move it."""

    async def claim(self, epoch: int) -> Position | None:
        """Shut out older holders, then read; None before the first start.

        EdenError when messages of another source are published already.
        """
        ...

    async def save(self, epoch: int, position: Position) -> None:
        """Store; LeaseLost if a newer holder has claimed it."""
        ...

    async def note_reread(self, epoch: int, result: RereadResult) -> None:
        """Store what came of reading messages again; LeaseLost as above."""
        ...


log = structlog.get_logger("eden.tailer")

MESSAGE = MessageRecorded.__name__
DEAD_TOGETHER = 10
"""Originals of dead letters held in memory at once: each may have 16 MB."""


class Mapping(Protocol):
    """The pure part (processors/tailer.py)."""

    def changes(self, changes: Sequence[ChangeEvent]) -> Mapped:
        """Records of a batch of changes."""
        ...

    def page(self, page: DocumentPage, origin: Origin) -> Mapped:
        """Records of a page of messages."""
        ...

    def carry(self, mapped: Mapped, document: Document, version: str, time: datetime) -> None:
        """Add what an inbox document asks for."""
        ...

    def dead(self, mapped: Mapped, originals: Sequence[Document], time: datetime) -> list[Outgoing]:
        """Dead letters of the documents that could not be mapped."""
        ...

    def created_since(self, page: DocumentPage, since: datetime) -> DocumentPage:
        """The documents of a page that were created then or later, and those that name no time."""
        ...

    def dead_key(self, document: Document) -> bytes:
        """The Kafka key of a document's dead letter."""
        ...

    def key(self, document: Document) -> bytes | None:
        """The Kafka key of a message's document; None if its id can be none."""
        ...

    def ended(self, key: bytes, version: str, time: datetime, reason: Reason, partition: int) -> Outgoing:
        """The tombstone of a message in a partition where it stands."""
        ...

    def watermark(self, partition: int, version: str, time: datetime) -> Outgoing:
        """Everything up to a cluster time is published to a partition."""
        ...


@dataclass(frozen=True, slots=True)
class Source:
    """What a leadership reads, and where it keeps its place."""

    changes: ChangeSource
    messages: Messages
    inbox: Inbox
    positions: Positions


class Leading:
    """What the phases of a leadership share: publishing, and making final what was published."""

    def __init__(
        self,
        epoch: int,
        source: Source,
        mapping: Mapping,
        publisher: TransactionalPublisher,
        commit_seconds: float,
        stopping: asyncio.Event,
    ) -> None:
        self._epoch, self._commit_seconds = epoch, commit_seconds
        self.source, self.mapping, self.publisher = source, mapping, publisher
        self.stopping = stopping
        self.position: Position | None = None
        self._saved: Position | None = None
        self._committed = time.monotonic()
        self._carried: list[Any] = []
        self.published = False
        """Whether any message of this source was published, now or before."""
        self.published_until: datetime | None = None
        """Of the stream: everything up to then is published."""

    async def claim(self) -> None:
        """Shut out older leaders, in Kafka and in MongoDB, and take over the position."""
        await self.publisher.start()
        self.position = self._saved = await self.source.positions.claim(self._epoch)
        self.published = self.position is not None and self.position.published

    async def publish(self, mapped: Mapped, now: datetime, origin: str) -> None:
        """Send what a batch became; the documents that became nothing go to the dead letters, whole."""
        if mapped.unmapped:
            await self._bury(mapped.unmapped, now)
        await self.publisher.send(mapped.records)
        self._carried.extend(mapped.carried)
        self.published |= MESSAGE in _count(origin, mapped)
        metrics.TAILER_EMPTY.inc(mapped.empty)
        metrics.TAILER_AUTHORLESS.inc(mapped.authorless)

    async def _bury(self, unmapped: Sequence[Unmapped], now: datetime) -> None:
        metrics.TAILER_UNMAPPED.inc(len(unmapped))
        for one in unmapped[:3]:
            identity = repr(one.document["_id"])[:80]
            log.warning("document cannot be used", collection=one.collection, id=identity, reason=one.reason)
        for start in range(0, len(unmapped), DEAD_TOGETHER):
            some = Mapped(unmapped=list(unmapped[start : start + DEAD_TOGETHER]))
            ids = [one.document["_id"] for one in some.unmapped]
            originals = await self.source.messages.originals(ids)
            await self.publisher.send(self.mapping.dead(some, originals, now))

    async def advance(self, position: Position) -> None:
        """Everything before `position` was handed to `publish`; made final when it is time."""
        self.position = position
        if time.monotonic() - self._committed >= self._commit_seconds:
            await self.settle()

    async def settle(self) -> None:
        """Make final what was published: commit, save the position, erase the inbox documents carried."""
        if self.publisher.dirty:
            await self.publisher.commit()
            metrics.TAILER_COMMITS.inc()
        self._committed = time.monotonic()
        try:
            await self._save()
        except SourceFailed as error:  # it stays behind, which is safe, and is saved the next time
            log.warning("position not saved", reason=error.what)

    async def note_reread(self, result: RereadResult) -> None:
        """Keep what came of reading messages again."""
        await self.source.positions.note_reread(self._epoch, result)

    async def _save(self) -> None:
        if self.position is not None:
            self.position = replace(self.position, published=self.published)
        if self.position is not None and self.position != self._saved:
            await self.source.positions.save(self._epoch, self.position)
            self._saved = self.position
        if self._carried:
            await self.source.inbox.erase(self._carried)
            self._carried.clear()

    @property
    def saved(self) -> Position | None:
        """The position that a next leader would begin from."""
        return self._saved

    def erase_later(self, ids: Sequence[Any]) -> None:
        """Inbox documents that are already carried, to be erased at the next settling."""
        self._carried.extend(ids)


def _count(origin: str, mapped: Mapped) -> Counter[str]:
    metrics.TAILER_RECORDS.labels(origin, "dead letter").inc(len(mapped.unmapped))
    kinds = Counter(map(_kind, mapped.records))
    for kind, number in kinds.items():
        metrics.TAILER_RECORDS.labels(origin, kind).inc(number)
    return kinds


def _kind(record: Outgoing) -> str:
    """The event's name, or `tombstone`."""
    if record.value is None:
        return "tombstone"
    types = (value for name, value in record.headers if name == "ce_type")
    return parse_type(next(types).decode())[0]
