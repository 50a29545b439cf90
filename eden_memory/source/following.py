"""Following the change stream: one batch in, its records out, a watermark now and then."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import structlog

from eden_memory import metrics
from eden_memory.mongo.changes import ChangeBatch, ChangeEvent, PositionLost, SourceFailed
from eden_memory.source.leading import Leading
from eden_memory.source.mapped import Mapped
from eden_memory.source.message_mapping import TOPIC
from eden_memory.source.rereading import Rereading

log = structlog.get_logger("eden.tailer")

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
NEVER = datetime.min.replace(tzinfo=UTC)


class Following:
    """The stream from `leading.position` on, until it is told to stop or the position is lost."""

    def __init__(
        self, leading: Leading, watermark_seconds: float, rereading: Rereading | None = None
    ) -> None:
        self._leading, self._seconds, self._rereading = leading, watermark_seconds, rereading
        self._watermarked = -watermark_seconds
        self._orphans: set[Any] = set()
        self._orphans_until = ""

    async def run(self) -> None:
        """PositionLost when the stream cannot go on from here."""
        leading = self._leading
        assert leading.position is not None
        await self._find_orphans()
        coming = asyncio.create_task(self._patiently(leading.position.token))
        stopped = asyncio.create_task(leading.stopping.wait())
        try:
            while (batch := await _unless(stopped, coming)) is not None:
                coming = asyncio.create_task(self._patiently(batch.position))
                await _question_sent()
                await self._carry_on(batch)
                if self._rereading is not None:
                    await self._rereading.run(leading)
        finally:
            coming.cancel()
            stopped.cancel()
            await asyncio.gather(coming, stopped, return_exceptions=True)

    async def _carry_on(self, batch: ChangeBatch) -> None:
        leading = self._leading
        assert leading.position is not None
        changes = batch.decoded()
        mapped = leading.mapping.changes(changes)
        self._orphans.difference_update(mapped.carried)
        self._ask(mapped)
        await leading.publish(mapped, batch.time, "stream")
        _count(changes)
        if mapped.gone is not None:
            # The position stays before it: whoever comes next meets it again, however this ends.
            raise PositionLost(f"the messages collection cannot be followed any further: {mapped.gone}")
        self._release_orphans(batch)
        await self._mark(batch)
        await leading.advance(replace(leading.position, token=batch.position, version=batch.version))
        leading.published_until = batch.time

    async def _mark(self, batch: ChangeBatch) -> None:
        now = time.monotonic()
        if now - self._watermarked < self._seconds:
            return
        leading = self._leading
        count = await leading.publisher.partitions(TOPIC)
        marks = [leading.mapping.watermark(number, batch.version, batch.time) for number in range(count)]
        await leading.publish(Mapped(marks), batch.time, "watermark")
        self._watermarked = now

    async def _patiently(self, token: str) -> ChangeBatch:
        """The next batch, however often the source has to be asked."""
        pause = FIRST_PAUSE
        while True:
            try:
                return await self._leading.source.changes.next(token)
            except SourceFailed as error:
                log.warning("asks the database again", reason=error.what, in_seconds=pause)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _find_orphans(self) -> None:
        """Inbox documents that a leader carried and did not live to erase: those there now that the stream,
        up to now, does not bring again.
        """
        waiting = Mapped()
        for document in await self._leading.source.inbox.waiting():
            self._leading.mapping.carry(waiting, document, "", NEVER)
        self._ask(waiting)
        self._orphans = set(waiting.carried)
        if self._orphans:
            self._orphans_until = (await self._leading.source.changes.now()).version

    def _ask(self, mapped: Mapped) -> None:
        if self._rereading is not None:
            self._rereading.ask(mapped.rereads)

    def _release_orphans(self, batch: ChangeBatch) -> None:
        if self._orphans and batch.version >= self._orphans_until:
            self._leading.erase_later(list(self._orphans))
            self._orphans.clear()


async def _question_sent() -> None:
    """Let the question leave before the work on the last answer begins, so that the server works meanwhile.

    It takes two turns of the loop: one asks, and uvloop writes at the end of the next. (Measured: with one turn
    catching up was a third slower.)
    """
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def _unless(stopped: "asyncio.Task[Any]", coming: "asyncio.Task[ChangeBatch]") -> ChangeBatch | None:
    """What comes; None when told to stop, however long it would still take."""
    await asyncio.wait((coming, stopped), return_when=asyncio.FIRST_COMPLETED)
    return None if stopped.done() else await coming


def _count(changes: Sequence[ChangeEvent]) -> None:
    for operation, number in Counter(change.operation for change in changes).items():
        metrics.TAILER_EVENTS.labels(operation).inc(number)
