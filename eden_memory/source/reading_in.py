"""What is older than the stream: the backfill of the first start, and the merge after a lost position.

Both read the collection in (created_at, _id) order, then the inbox. The backfill publishes everything and goes on
where it stopped; the merge publishes what the topic does not know as it is, and ends what has no document any more.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import orjson
import structlog

from eden_memory import metrics
from eden_memory.kafka.outgoing import Outgoing
from eden_memory.mongo.changes import DocumentPage
from eden_memory.source.known_message_topics import Known
from eden_memory.source.leading import Leading
from eden_memory.source.mapped import Mapped
from eden_memory.source.message_mapping import TOPIC, Origin
from eden_memory.source.position import Position
from eden_memory.stages.publishing import partition_for

log = structlog.get_logger("eden.tailer")

PROGRESS_SECONDS = 5.0


async def backfill(leading: Leading) -> None:
    """Publish every message of the collection, from where `position.page` says; ends in phase `stream`."""
    position = _position(leading)
    progress = Progress("backfill", await leading.source.messages.count(), position.read)
    async for page in ahead(leading, position.page):
        await leading.publish(leading.mapping.page(page, "backfill"), page.time, "backfill")
        position = replace(
            position, page=page.last, read=position.read + len(page.documents), version=page.version
        )
        await leading.advance(position)
        progress.tell(position.read)
        if leading.stopping.is_set():
            return
    await _finish(leading, position, progress)


async def merge(leading: Leading, known: Known) -> None:
    """Publish what is new or changed against `known`, end what is missing; ends in phase `stream`.

    The position's version stays that of the merge's beginning. What is missing ended before it: a deletion
    since then comes with the stream, at a version of its own, above.
    """
    position = replace(_position(leading), page=None, read=0)
    progress = Progress("merge", await leading.source.messages.count(), 0)
    async for page in ahead(leading, position.page):
        mapped = await unknown(leading, known, page, "merge")
        await leading.publish(mapped, page.time, "merge")
        position = replace(position, read=position.read + len(page.documents))
        await leading.advance(position)
        progress.tell(position.read)
        if leading.stopping.is_set():
            return
    await _end_missing(leading, known, position)
    await _finish(leading, replace(position, page=None), progress)


async def unknown(leading: Leading, known: Known, page: DocumentPage, origin: Origin) -> Mapped:
    """Of a page, the records that the topic does not hold as they are; tombstones where a message moved away.

    What was forgotten is not read again: its tombstone stands.
    """
    mapped = leading.mapping.page(page, origin)
    mapped.records += [record for record in mapped.emptied if known.holds(record.key)]
    if origin == "reread":
        mapped.records[:] = [record for record in mapped.records if not known.erased(record.key)]
    count = await leading.publisher.partitions(TOPIC)
    partitions = [partition_for(record.ordering_key, count) for record in mapped.records]
    changed: list[Outgoing] = []
    for verdict in known.compare(mapped.records, partitions):
        if verdict is not None:
            record, elsewhere = verdict
            moved = [
                leading.mapping.ended(record.key, page.version, page.time, "moved", one) for one in elsewhere
            ]
            changed += [*moved, _dated(known, record) if origin == "reread" else record]
    mapped.records[:] = changed + _lost_their_session(leading, known, page, mapped)
    return mapped


def _dated(known: Known, record: Outgoing) -> Outgoing:
    """A record of a message that is read again, with the time at which its text was edited."""
    edited_at = known.edited_at(record.key)
    if edited_at is None or record.value is None:
        return record
    fields = {**orjson.loads(record.value), "edited_at": edited_at}
    return record._replace(value=orjson.dumps(fields))


def _lost_their_session(leading: Leading, known: Known, page: DocumentPage, mapped: Mapped) -> list[Outgoing]:
    """What can no longer be recorded goes to the dead letters; where it stood it ends, as in the stream."""
    keys = [leading.mapping.key(one.document) for one in mapped.unmapped]
    return [
        leading.mapping.ended(key, page.version, page.time, "moved", partition)
        for key in keys
        if key is not None
        for partition in known.meet(key)
    ]


async def _end_missing(leading: Leading, known: Known, position: Position) -> None:
    """Tombstones for the messages that the topic holds and the collection, asked once more, does not."""
    now = await leading.source.changes.now()
    missing = 0
    for places in known.unmet():
        existing = await leading.source.messages.existing([place.key.decode() for place in places])
        gone = [place for place in places if place.key.decode() not in existing]
        records = [
            leading.mapping.ended(place.key, position.version, now.time, "missing", place.partition)
            for place in gone
        ]
        await leading.publish(Mapped(records), now.time, "merge")
        missing += len(gone)
    metrics.TAILER_MISSING.inc(missing)
    if missing:
        log.error(
            "messages are missing from the collection; their records are ended, their memory stays",
            messages=missing,
            to_forget_it="eden forget --missing",
        )


async def _finish(leading: Leading, position: Position, progress: "Progress") -> None:
    """The inbox comes after every message; then the stream can be followed, which finds requests to read again."""
    waiting = Mapped()
    now = await leading.source.changes.now()
    for document in await leading.source.inbox.waiting():
        leading.mapping.carry(waiting, document, now.version, now.time)
    await leading.publish(waiting, now.time, "inbox")
    progress.tell(position.read, finished=True)
    leading.position = replace(position, phase="stream", page=None)
    await leading.settle()


async def ahead(leading: Leading, after: Any, session: Any = None) -> AsyncGenerator[DocumentPage, None]:
    """Pages of the collection (or of one session), the next one on its way while one is worked on."""
    async with aclosing(leading.source.messages.pages(after, session)) as pages:
        coming = asyncio.ensure_future(anext(pages, None))
        try:
            while (page := await coming) is not None:
                coming = asyncio.ensure_future(anext(pages, None))
                await asyncio.sleep(0)
                await asyncio.sleep(0)  # as in following: until the next page has been asked for
                yield page
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)


def _position(leading: Leading) -> Position:
    if leading.position is None:
        raise RuntimeError("a position is taken before anything is read in")
    return leading.position


class Progress:
    """Says every few seconds how far a reading has come, how fast, and when it will be done."""

    def __init__(self, what: str, total: int, read: int) -> None:
        self._what, self._total = what, total
        self._began, self._before = time.monotonic(), read
        self._told = self._began
        metrics.TAILER_BACKFILL_TOTAL.set(total)
        log.info(f"{what} begins", messages=total, already_read=read)

    def tell(self, read: int, *, finished: bool = False) -> None:
        """`read` messages so far."""
        metrics.TAILER_BACKFILL_READ.set(read)
        now = time.monotonic()
        if not finished and now - self._told < PROGRESS_SECONDS:
            return
        self._told = now
        rate = (read - self._before) / max(now - self._began, 0.001)
        left = max(self._total - read, 0)
        log.info(
            f"{self._what} finished" if finished else self._what,
            read=read,
            of=self._total,
            per_second=round(rate),
            eta_seconds=None if finished or not rate else round(left / rate),
        )
