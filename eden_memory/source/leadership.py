"""Run one active tailer among many: wait for the lease, lead, follow the change stream, begin again.

A leadership backfills or merges where the stream does not reach, then follows the stream.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from eden_memory import metrics
from eden_memory.errors import describe
from eden_memory.logs import LibraryLogger
from eden_memory.mongo.changes import ChangeBatch, ChangeEvent, PositionLost, SourceFailed
from eden_memory.mongo.leases import LeaseLost, MongoLease
from eden_memory.source.backfill import (
    MessageRereader,
    MessagesTopic,
    backfill,
    carry_inbox,
    holds_any_record,
    known_messages,
    merge,
)
from eden_memory.source.inbox_store import MOST
from eden_memory.source.leader import Leader
from eden_memory.source.message_mapping import TOPIC
from eden_memory.source.messages_store import MappingVersions
from eden_memory.source.position_store import MongoOplog, OplogWindow, another_source, named, nothing_there
from eden_memory.source.source_mapping import REREAD, Mapped
from eden_memory.stages.failure_decisions import passes
from eden_memory.stages.process import State
from eden_memory.tasks import end, first_of, run_until_first

log = LibraryLogger("eden.tailer")


ERASING_PAUSE, LONGEST_ERASING_PAUSE = 0.1, 2.0
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
        listed = self._leader.source.listed
        mapped = self._map_changes(changes if listed is None else await listed.changes(changes))
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
        pause = ERASING_PAUSE
        while True:
            try:
                return await self._leader.source.changes.next(token)
            except SourceFailed as error:
                log.warning("asks the database again", reason=error.what, in_seconds=pause)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_ERASING_PAUSE)

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


STOP_SECONDS = 2.0
"""For sending, committing and saving at a stop; with the lease and the connections a stop takes < 5 s."""
AGAIN_SECONDS = 5.0
"""Seconds after which a lost cancellation is repeated: disconnecting and giving the lease back come first."""
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
STANDS_BY, STANDS_BY_SECONDS = "stands by: another tailer holds the lease", 1.0
"""Seconds of waiting for the lease after which that is logged, once."""
MEASURE_SECONDS, OPLOG_SECONDS = 1.0, 15.0
GAUGES = (
    metrics.TAILER_LAG,
    metrics.TAILER_POSITION_AGE,
    metrics.TAILER_OPLOG_LEFT,
    metrics.TAILER_OPLOG_BYTES_LEFT,
    metrics.TAILER_OPLOG_WINDOW,
)


class TailerPart:
    """The tailer as a part of a process.

    `lead` runs one leadership until told to stop, given the lease's epoch and the signal to stop.
    """

    name = "tailer"

    def __init__(
        self,
        lease: MongoLease,
        lead: Callable[[int, asyncio.Event], Awaitable[None]],
        again_seconds: float = AGAIN_SECONDS,
    ) -> None:
        self._lease, self._lead, self._again_seconds = lease, lead, again_seconds
        self._stopping = asyncio.Event()
        self.leading = False

    def stop(self) -> None:
        """Flush, save, give the lease back; `run` returns then."""
        self._stopping.set()

    def state(self) -> State:
        """Report ready whether it leads or stands by: standing by is its work, too."""
        return State(True, "leads" if self.leading else STANDS_BY)

    async def run(self) -> None:
        """Run until `stop`; raise errors that trying again cannot repair."""
        work = asyncio.create_task(self._lead_again_and_again())
        try:
            await first_of(work, self._stopping)
            if self.leading:
                await asyncio.wait({work}, timeout=STOP_SECONDS)
        finally:
            await end([work], self._again_seconds)
        if not work.cancelled():
            work.result()

    async def _lead_again_and_again(self) -> None:
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            try:
                async with self._leadership() as epoch:
                    await self._lead(epoch, self._stopping)
                pause = FIRST_PAUSE
            except LeaseLost as error:
                log.warning("leadership lost", reason=error.what)
            except Exception as error:
                if not passes(error):
                    raise
                log.warning("begins again from the saved position", reason=describe(error), in_seconds=pause)
                await self._pause(pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    @asynccontextmanager
    async def _leadership(self) -> AsyncGenerator[int]:
        """Wait for the lease, and hold it for the block; yields its epoch."""
        waiting = asyncio.get_running_loop().call_later(STANDS_BY_SECONDS, log.info, STANDS_BY)
        try:
            async with self._lease.held() as epoch:
                waiting.cancel()
                self.leading = True
                metrics.TAILER_LEADING.set(1)
                metrics.TAILER_TAKEOVERS.inc()
                log.info("leads", epoch=epoch)
                try:
                    yield epoch
                finally:
                    self.leading = False
                    metrics.TAILER_LEADING.set(0)
        finally:
            waiting.cancel()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return


@dataclass(frozen=True, slots=True)
class Leadership:
    """One leadership, from the claim to the last commit."""

    leader: Leader
    map_changes: MapChanges
    topic: MessagesTopic
    rereader: MessageRereader
    versions: MappingVersions
    source: str
    """Names the application's collection."""
    watermark_seconds: float
    oplog: MongoOplog | None = None
    """Measured where the settings ask for it."""
    new_source: bool = False
    """Messages of another source, and of a collection that is empty now, may be ended."""

    async def run(self) -> None:
        """Lead until told to stop, or until something fails that a new leadership has to repair."""
        leader = self.leader
        try:
            await leader.claim()
            await run_until_first(self._phases(), _measure(leader, self.oplog))
        finally:
            for gauge in GAUGES:
                gauge.set(0)
            await leader.source.changes.close()
            await leader.close()

    async def _phases(self) -> None:
        leader = self.leader
        if not leader.began:
            await leader.begin("merge" if await holds_any_record(self.topic) else "backfill")
        await self._warn()
        while not leader.stopping.is_set():
            await self._phase()
        await leader.settle()

    async def _warn(self) -> None:
        """Log what the operator should know before the phases begin."""
        if await self.leader.source.messages.empty():
            log.warning(
                "the messages collection is empty or does not exist: memory forms once messages are written there",
                collection=named(self.source),
                if_they_are_elsewhere="set EDEN_SOURCE_DATABASE and EDEN_MESSAGES_COLLECTION",
            )
        for line in await self.versions.warnings():
            log.warning(line)

    async def _phase(self) -> None:
        """Run the phase that the position names; a lost position is followed by a merge."""
        leader = self.leader
        match leader.position.phase:
            case "backfill":
                await backfill(leader)
            case "merge":
                await self._merge()
            case "inbox":
                await carry_inbox(leader)
            case _:
                try:
                    await StreamFollower(
                        leader, self.map_changes, self.watermark_seconds, self.rereader
                    ).run()
                except PositionLost as error:
                    metrics.TAILER_POSITION_LOST.inc()
                    log.error(
                        "the stream's position is lost: the collection is merged, nothing is left out",
                        reason=error.what,
                    )
                    await leader.begin("merge")

    async def _merge(self) -> None:
        async with known_messages(self.topic) as known:
            await self._compare_sources(known.by_source())
            log.info("merges the collection against what the topic holds", messages=len(known))
            await merge(self.leader, known)

    async def _compare_sources(self, found: Mapping[str, int]) -> None:
        """EdenError when the merge would look for messages, counted by source, where they have never been."""
        if not found:
            return
        leader, others = self.leader, found.keys() - {self.source}
        if others and not leader.published and not self.new_source:
            raise another_source(self.source, others)
        if not self.new_source and await leader.source.messages.empty():
            raise nothing_there(self.source, sum(found.values()))
        leader.published = True


async def _measure(leader: Leader, oplog: MongoOplog | None) -> None:
    """Keep the gauges right, by the clock, also while nothing moves."""
    asked = -OPLOG_SECONDS
    while True:
        now = datetime.now(UTC)
        if leader.began:
            until = leader.published_until or moment_of(leader.position.version)
            metrics.TAILER_LAG.set(max(0.0, (now - until).total_seconds()))
        if leader.saved is not None:
            saved = moment_of(leader.saved.version)
            metrics.TAILER_POSITION_AGE.set(max(0.0, (now - saved).total_seconds()))
            if oplog is not None and time.monotonic() - asked >= OPLOG_SECONDS:
                asked = time.monotonic()
                _measure_oplog(saved, await oplog.window())
        await asyncio.sleep(MEASURE_SECONDS)


def _measure_oplog(saved: datetime, window: OplogWindow | None) -> None:
    if window is None:
        return
    metrics.TAILER_OPLOG_WINDOW.set(window.seconds)
    left = window.left(saved)
    if left is not None:
        seconds, room = left
        metrics.TAILER_OPLOG_LEFT.set(max(1.0, seconds))
        metrics.TAILER_OPLOG_BYTES_LEFT.set(max(1.0, room))


def moment_of(version: str) -> datetime:
    """Return the cluster time that a version is, to the second."""
    return datetime.fromtimestamp(int(version[:8], 16), UTC)
