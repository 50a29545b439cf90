"""Read messages older than the stream: the backfill of the first start, and the merge after a lost position.

Both read the collection in (created_at, _id) order, then the inbox. The backfill publishes everything, and resumes
where it stopped. The merge publishes only what differs from the topic, and ends messages that lost their document.

The inbox is a phase of its own (invariant request-after-messages): once a request is published, no page is read any
more, and what the pages lack comes with the stream, at its own version.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import orjson

from eden_memory import metrics
from eden_memory.kafka.outgoing import Outgoing
from eden_memory.logs import LibraryLogger
from eden_memory.mongo.changes import PART, DocumentPage, SourceFailed
from eden_memory.source.known_message_topics import Known
from eden_memory.source.leader import Leader
from eden_memory.source.message_mapping import TOPIC, Origin
from eden_memory.source.position_store import TailerPosition
from eden_memory.source.source_mapping import Mapped
from eden_memory.stages.publishing import partition_for

log = LibraryLogger("eden.tailer")

PROGRESS_SECONDS = 5.0


async def backfill(leader: Leader) -> None:
    """Publish every message of the collection, from where `position.page` says; ends in phase `inbox`."""
    position = leader.position
    progress = ReadProgress("backfill", await leader.source.messages.count(), position.read)
    async for page in pages_ahead(leader, position.page):
        await _publish_page(leader, page)
        position = replace(
            position, page=page.last, read=position.read + len(page.documents), version=page.version
        )
        await leader.advance(position)
        progress.report(position.read)
        if leader.stopping.is_set():
            return
    await _finish(leader, position, progress)


async def _publish_page(leader: Leader, page: DocumentPage) -> None:
    for start in range(0, len(page.documents), PART):
        part = page._replace(documents=page.documents[start : start + PART])
        await leader.publish(leader.mapping.map_page(part, "backfill"), page.time, "backfill", more=True)
    await leader.publisher.ship()


async def merge(leader: Leader, known: Known) -> None:
    """Publish what is new or changed against `known`, end what is missing; ends in phase `inbox`.

    The position's version stays that of the merge's beginning. What is missing ended before it: a deletion
    since then comes with the stream, at a version of its own, above.
    """
    position = replace(leader.position, page=None, read=0)
    progress = ReadProgress("merge", await leader.source.messages.count(), 0)
    async for page in pages_ahead(leader, position.page):
        mapped = await differing(leader, known, page, "merge")
        await leader.publish(mapped, page.time, "merge")
        position = replace(position, read=position.read + len(page.documents))
        await leader.advance(position)
        progress.report(position.read)
        if leader.stopping.is_set():
            return
    await _end_missing(leader, known, position)
    await _finish(leader, replace(position, page=None), progress)


async def differing(leader: Leader, known: Known, page: DocumentPage, origin: Origin) -> Mapped:
    """Map a page to the records that differ from the topic, and to tombstones where a message moved away.

    A forgotten message is not read again: its tombstone stays.
    """
    mapped = leader.mapping.map_page(page, origin)
    mapped.records += [record for record in mapped.emptied if known.holds(record.key)]
    if origin == "reread":
        mapped.records[:] = [record for record in mapped.records if not known.erased(record.key)]
    count = await leader.publisher.partitions(TOPIC)
    partitions = [partition_for(record.ordering_key, count) for record in mapped.records]
    changed: list[Outgoing] = []
    for verdict in known.compare(mapped.records, partitions):
        if verdict is not None:
            record, elsewhere = verdict
            moved = [
                leader.mapping.tombstone(record.key, page.version, page.time, "moved", partition)
                for partition in elsewhere
            ]
            changed += [*moved, _dated(known, record) if origin == "reread" else record]
    mapped.records[:] = changed + _lost_their_session(leader, known, page, mapped)
    return mapped


def _dated(known: Known, record: Outgoing) -> Outgoing:
    """Add to the record of a message that is read again when its text was edited."""
    edited_at = known.edited_at(record.key)
    if edited_at is None or record.value is None:
        return record
    fields = {**orjson.loads(record.value), "edited_at": edited_at}
    return record._replace(value=orjson.dumps(fields))


def _lost_their_session(leader: Leader, known: Known, page: DocumentPage, mapped: Mapped) -> list[Outgoing]:
    """Return tombstones for messages that can no longer be recorded; they go to the dead letters."""
    keys = [leader.mapping.key_of(refused.document) for refused in mapped.unmapped]
    return [
        leader.mapping.tombstone(key, page.version, page.time, "moved", partition)
        for key in keys
        if key is not None
        for partition in known.meet(key)
    ]


async def _end_missing(leader: Leader, known: Known, position: TailerPosition) -> None:
    """Publish tombstones for messages that the topic holds and the collection, asked once more, does not."""
    now = await leader.source.changes.now()
    missing = 0
    for places in known.unmet():
        existing = await leader.source.messages.existing([place.key.decode() for place in places])
        gone = [place for place in places if place.key.decode() not in existing]
        records = [
            leader.mapping.tombstone(place.key, position.version, now.time, "missing", place.partition)
            for place in gone
        ]
        await leader.publish(Mapped(records), now.time, "merge")
        missing += len(gone)
    metrics.TAILER_MISSING.inc(missing)
    if missing:
        log.error(
            "messages are missing from the collection; their records are ended, their memory stays",
            messages=missing,
            to_forget_it="eden forget --missing",
        )


async def _finish(leader: Leader, position: TailerPosition, progress: "ReadProgress") -> None:
    """Go over to the inbox; SourceFailed if the position cannot be saved, because then pages would be read again."""
    progress.report(position.read, finished=True)
    await leader.settle(replace(position, phase="inbox", page=None))
    if leader.saved is None or leader.saved.phase != "inbox":
        raise SourceFailed("the position behind the last page is not saved")


async def carry_inbox(leader: Leader) -> None:
    """Publish the inbox, behind every message, and go over to the stream, which finds requests to read again.

    The version of requests that are read together is taken after that: no message before a request has a higher one.
    """
    async with aclosing(leader.source.inbox.waiting()) as waiting:
        async for documents in waiting:
            now, mapped = await leader.source.changes.now(), Mapped()
            for document in documents:
                leader.mapping.add_request(mapped, document, now.version, now.time)
            await leader.publish(mapped, now.time, "inbox")
            await leader.advance(leader.position)
            if leader.stopping.is_set():
                return
    await leader.settle(replace(leader.position, phase="stream"))


async def pages_ahead(
    leader: Leader, after: Any, session: Any = None, documents: Sequence[Any] | None = None
) -> AsyncGenerator[DocumentPage, None]:
    """Yield pages of the collection (or of one session, or some documents), and fetch the next page meanwhile."""
    async with aclosing(leader.source.messages.pages(after, session, documents)) as pages:
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


class ReadProgress:
    """Log every few seconds how many messages were read, how fast, and when all of them will be."""

    def __init__(self, what: str, total: int, read: int) -> None:
        self._what, self._total = what, total
        self._began, self._before = time.monotonic(), read
        self._reported = self._began
        metrics.TAILER_BACKFILL_TOTAL.set(total)
        log.info(f"{what} begins", messages=total, already_read=read)

    def report(self, read: int, *, finished: bool = False) -> None:
        """Report that so many messages are read so far."""
        metrics.TAILER_BACKFILL_READ.set(read)
        now = time.monotonic()
        if not finished and now - self._reported < PROGRESS_SECONDS:
            return
        self._reported = now
        rate = (read - self._before) / max(now - self._began, 0.001)
        left = max(self._total - read, 0)
        log.info(
            f"{self._what} finished" if finished else self._what,
            read=read,
            of=self._total,
            per_second=round(rate),
            eta_seconds=None if finished or not rate else round(left / rate),
        )
