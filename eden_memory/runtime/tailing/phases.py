"""The phases of one leadership: backfill or merge where the stream does not reach, then the stream."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from aiokafka.errors import KafkaError

from eden_memory.ports import Position, PositionLost
from eden_memory.runtime import metrics
from eden_memory.runtime.tailing.following import Following
from eden_memory.runtime.tailing.known import Consumers, Known
from eden_memory.runtime.tailing.leading import Leading
from eden_memory.runtime.tailing.measuring import Window, measured
from eden_memory.runtime.tailing.reading_in import backfill, merge
from eden_memory.runtime.tailing.transactions import PublishFailed

log = structlog.get_logger("eden.tailer")

Leadings = Callable[[int, asyncio.Event], Leading]
"""epoch, stop signal → what one leadership works with."""


@dataclass(frozen=True, slots=True)
class Leadership:
    """Runs one leadership from beginning to end; `consumers` read `chat.messages`."""

    leadings: Leadings
    consumers: Consumers
    watermark_seconds: float
    window: Window | None = None
    """The oplog's, for those who watch."""

    async def run(self, epoch: int, stopping: asyncio.Event) -> None:
        """Until told to stop, or until something fails that a new leadership has to put right."""
        leading = self.leadings(epoch, stopping)
        try:
            await leading.claim()
            async with measured(leading, self.window):
                await self._phases(leading)
                await leading.settle()
        finally:
            await leading.source.changes.close()
            await leading.publisher.stop()

    async def _phases(self, leading: Leading) -> None:
        if leading.position is None:
            await self._begin(leading, "merge" if await self._any_record() else "backfill")
        while not leading.stopping.is_set():
            assert leading.position is not None
            if leading.position.phase == "backfill":
                await backfill(leading)
            elif leading.position.phase == "merge":
                await self._merge(leading)
            else:
                await self._follow(leading)

    async def _begin(self, leading: Leading, phase: str) -> None:
        now = await leading.source.changes.now()
        leading.position = Position(now.position, now.version, phase)
        await leading.settle()

    async def _follow(self, leading: Leading) -> None:
        try:
            await Following(leading, self.watermark_seconds).run()
        except PositionLost as error:
            metrics.TAILER_POSITION_LOST.inc()
            log.error(
                "the stream's position is lost: the collection is merged, nothing is left out",
                reason=error.what,
            )
            await self._begin(leading, "merge")

    async def _merge(self, leading: Leading) -> None:
        known = Known()
        try:
            keys = await known.read(self.consumers)
            log.info("merges the collection against what the topic holds", messages=keys)
            await merge(leading, known)
        finally:
            known.close()

    async def _any_record(self) -> bool:
        consumer = self.consumers("read_uncommitted")
        try:
            await consumer.start()
            ends = await consumer.end_offsets(consumer.assignment())
            return any(ends.values())
        except KafkaError as error:
            raise PublishFailed(f"Kafka, looking whether the topic holds anything: {error!r}") from error
        finally:
            await consumer.stop()
