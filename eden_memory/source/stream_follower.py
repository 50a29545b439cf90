"""Follow the change stream: publish the records of each batch, and a watermark every few seconds."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from eden_memory import metrics
from eden_memory.logs import LibraryLogger
from eden_memory.mongo.changes import ChangeBatch, ChangeEvent, PositionLost, SourceFailed
from eden_memory.source.inbox_mapping import REREAD
from eden_memory.source.inbox_store import MOST
from eden_memory.source.leader import Leader
from eden_memory.source.message_mapping import TOPIC
from eden_memory.source.rereader import MessageRereader
from eden_memory.source.source_mapping import Mapped
from eden_memory.tasks import first_of

log = LibraryLogger("eden.tailer")

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
FEW_CHANGES = 20
"""Up to this many changes are published before more are requested: that costs less than waiting for the answer."""
NEVER = datetime.min.replace(tzinfo=UTC)

MapChanges = Callable[[Sequence[ChangeEvent]], Mapped]
"""Map a batch of changes to records (processors/tailer.py)."""


class StreamFollower:
    """Follow the stream from the leader's position until told to stop, or until the position is lost."""

    def __init__(
        self, leader: Leader, map_changes: MapChanges, watermark_seconds: float, rereader: MessageRereader
    ) -> None:
        self._leader, self._map_changes, self._rereader = leader, map_changes, rereader
        self._seconds, self._watermarked = watermark_seconds, -watermark_seconds
        self._orphans: dict[str, Any] = {}
        self._orphans_until, self._more = "", False

    async def run(self) -> None:
        """Publish batch after batch; PositionLost when the stream cannot go on from the position."""
        await self._find_orphans()
        coming = asyncio.create_task(self._next(self._leader.position.token))
        stopped = asyncio.create_task(self._leader.stopping.wait())
        try:
            while (batch := await _unless(stopped, coming)) is not None:
                if batch.size <= FEW_CHANGES:
                    await self._publish(batch)
                coming = asyncio.create_task(self._next(batch.position))
                if batch.size > FEW_CHANGES:
                    await _question_sent()
                    await self._publish(batch)
                await self._rereader.run()
        finally:
            coming.cancel()
            stopped.cancel()
            await asyncio.gather(coming, stopped, return_exceptions=True)

    async def _publish(self, batch: ChangeBatch) -> None:
        leader, gone = self._leader, None
        for changes in batch.parts():
            gone = await self._publish_part(changes, batch.time) or gone
        await leader.publisher.ship()
        if gone is not None:
            # The position stays before it: whoever comes next meets it again, however this ends.
            raise PositionLost(f"the messages collection cannot be followed any further: {gone}")
        await self._release_orphans(batch)
        await self._publish_watermarks(batch)
        await leader.advance(replace(leader.position, token=batch.position, version=batch.version))
        leader.published_until = batch.time

    async def _publish_part(self, changes: Sequence[ChangeEvent], now: datetime) -> str | None:
        """Publish the records of some changes of a batch; return why the collection is gone, if it is."""
        mapped = self._map_changes(changes)
        if self._orphans:
            for carried in mapped.carried:
                self._orphans.pop(repr(carried), None)
        self._rereader.request(mapped.rereads)
        await self._leader.publish(mapped, now, "stream", more=True)
        for operation, number in Counter(change.operation for change in changes).items():
            metrics.TAILER_EVENTS.labels(operation).inc(number)
        return mapped.gone

    async def _publish_watermarks(self, batch: ChangeBatch) -> None:
        now = time.monotonic()
        if now - self._watermarked < self._seconds:
            return
        leader = self._leader
        count = await leader.publisher.partitions(TOPIC)
        marks = [leader.mapping.watermark(number, batch.version, batch.time) for number in range(count)]
        await leader.publish(Mapped(marks), batch.time, "watermark")
        self._watermarked = now

    async def _next(self, token: str) -> ChangeBatch:
        """Return the next batch; ask the source again until it answers."""
        pause = FIRST_PAUSE
        while True:
            try:
                return await self._leader.source.changes.next(token)
            except SourceFailed as error:
                log.warning("asks the database again", reason=error.what, in_seconds=pause)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _find_orphans(self) -> None:
        """Find the inbox documents that an earlier leader carried and did not live to erase.

        They are there now, and the stream, up to now, does not bring them again. Requests to read again stay.
        """
        source, waiting = self._leader.source, Mapped()
        async for documents in source.inbox.waiting(REREAD):
            for document in documents:
                self._leader.mapping.add_request(waiting, document, "", NEVER)
        self._rereader.request(waiting.rereads)
        found, self._orphans_until = await source.inbox.oldest_ids(besides=REREAD)
        self._orphans = {repr(identity): identity for identity in (*waiting.carried, *found)}
        self._more = len(found) == MOST

    async def _release_orphans(self, batch: ChangeBatch) -> None:
        """Erase the orphans, and look for more, once the stream has passed the moment when they were found."""
        if self._orphans and batch.version >= self._orphans_until:
            orphans = list(self._orphans.values())
            self._leader.erase_later(orphans)
            self._orphans.clear()
            if self._more:
                await self._leader.settle()
                await self._find_orphans()


async def _question_sent() -> None:
    """Let the question leave before the work on the last answer begins, so that the server works meanwhile.

    It takes two turns of the loop: one asks, and uvloop writes at the end of the next. (Measured: with one turn
    catching up was a third slower.)
    """
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def _unless(stopped: "asyncio.Task[Any]", coming: "asyncio.Task[ChangeBatch]") -> ChangeBatch | None:
    """Return the next batch; None when told to stop, however long the batch would still take."""
    await first_of(coming, stopped)
    return None if stopped.done() else await coming
