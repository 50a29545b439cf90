"""The phases of one leadership: backfill or merge where the stream does not reach, then the stream."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog
from aiokafka.errors import KafkaError

from eden_memory import metrics
from eden_memory.error_text import describe
from eden_memory.kafka.connection import start
from eden_memory.mongo.changes import PositionLost
from eden_memory.source.chat_topics import PublishFailed
from eden_memory.source.following import Following
from eden_memory.source.known_message_topics import Consumers, Known
from eden_memory.source.leadership_metrics import Window, measured
from eden_memory.source.leading import Leading
from eden_memory.source.position import Position
from eden_memory.source.reading_in import backfill, merge
from eden_memory.source.refusals import another_source, named, nothing_there
from eden_memory.source.rereading import Rereading

log = structlog.get_logger("eden.tailer")

Leadings = Callable[[int, asyncio.Event], Leading]
"""epoch, stop signal → what one leadership works with."""


async def nothing() -> Sequence[str]:
    """Nothing to say."""
    return ()


@dataclass(frozen=True, slots=True)
class Leadership:
    """Runs one leadership from beginning to end; `consumers` read `chat.messages`."""

    leadings: Leadings
    consumers: Consumers
    watermark_seconds: float
    source: str
    """Names the application's collection."""
    window: Window | None = None
    """The oplog's, for those who watch."""
    new_source: bool = False
    """Messages of another source, and of a collection that is empty now, may be ended."""
    rereading: Callable[[], Rereading] | None = None
    """What reads messages again; one for each leadership."""
    misread: Callable[[], Awaitable[Sequence[str]]] = nothing
    """What to say of messages that another field mapping read."""

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
        await self._say_if_empty(leading)
        for line in await self.misread():
            log.warning(line)
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
            rereading = None if self.rereading is None else self.rereading()
            await Following(leading, self.watermark_seconds, rereading).run()
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
            await self._compare_sources(leading, known.by_source())
            log.info("merges the collection against what the topic holds", messages=keys)
            await merge(leading, known)
        finally:
            known.close()

    async def _compare_sources(self, leading: Leading, found: Mapping[str, int]) -> None:
        """EdenError when the merge would look for messages, counted by source, where they have never been."""
        if not found:
            return
        others = found.keys() - {self.source}
        if others and not leading.published and not self.new_source:
            raise another_source(self.source, others)
        if not self.new_source and await leading.source.messages.empty():
            raise nothing_there(self.source, sum(found.values()))
        leading.published = True

    async def _say_if_empty(self, leading: Leading) -> None:
        if await leading.source.messages.empty():
            log.warning(
                "the messages collection is empty or does not exist: memory forms once messages are written there",
                collection=named(self.source),
                if_they_are_elsewhere="set EDEN_SOURCE_DATABASE and EDEN_MESSAGES_COLLECTION",
            )

    async def _any_record(self) -> bool:
        consumer = self.consumers("read_uncommitted")
        try:
            await start(consumer)
            ends = await consumer.end_offsets(consumer.assignment())
            return any(ends.values())
        except KafkaError as error:
            raise PublishFailed(
                f"Kafka, looking whether the topic holds anything: {describe(error)}"
            ) from error
        finally:
            await consumer.stop()
