"""memory.facts, memory.reflections, memory.consolidations → a namespace: atlas-writer's own stage, and how far it is.

Nothing is published: what a rebuild has to say, the live writer has said. What cannot be read or written is counted
and passed over; the live writer's dead letters name it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Protocol

import structlog
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from eden_memory.errors import EdenError
from eden_memory.replay.rebuild.memory_topics import Places, behind, passed
from eden_memory.schemas.documents import Namespace, Place
from eden_memory.stages.outcome import StoredRecord
from eden_memory.stages.patience import until_done
from eden_memory.stages.stage import Decision, Delivery, Handler, Stage
from eden_memory.stages.worker import Bounds, Surroundings, Worker

log = structlog.get_logger()
BATCH = 1_500
"""Records of one partition that are written together: what is of one scope goes into one transaction."""
HANDLERS = 2
"""Batches at a time: one waits for MongoDB while the other is decoded; more of them only take memory."""
BOUNDS = Bounds(records=1_000, bytes=1_500_000, commit_seconds=0.5, poll_seconds=0.1, stop_seconds=10.0)
"""Of every partition of every topic: with six partitions, about 30 MB wait at most."""
LOOK_SECONDS = 0.5
NOTE_SECONDS = 5.0
LEAVE_SECONDS = 15.0


class Noted(Protocol):
    """Where is kept how far a namespace is."""

    async def reached(self, name: str, places: Sequence[Place], unreadable: int) -> None:
        """Note it; `unreadable` records more."""
        ...

    async def caught_up(self, name: str, at: datetime) -> Mapping[str, int]:
        """Note that everything is in it; documents by collection."""
        ...


@dataclass(slots=True)
class Counted:
    """What one process has done."""

    records: int = 0
    unreadable: int = 0

    async def publish(self, records: Sequence[StoredRecord]) -> None:
        """In the place of a publisher: only dead letters come here, and they are counted."""
        self.unreadable += len(records)


def silent(writer: Handler, counted: Counted) -> Handler:
    """The writer, without its events: they would reach live topics."""

    async def run(deliveries: Sequence[Delivery]) -> Decision:
        decision = await writer(deliveries)
        assert isinstance(decision, Decision)
        covered = len(deliveries) if decision.covers is None else decision.covers
        counted.records += covered
        return Decision((), covers=decision.covers)

    return run


def silent_worker(row: Stage, name: str, group: str, counted: Counted, around: Surroundings) -> Worker:
    """The writer's row of the table under another name and in another group, without its events."""
    stage = replace(
        row,
        name=name,
        handler=silent(row.handler, counted),
        writes=(),
        at_once=HANDLERS,
        batch=BATCH,
        dead_share=1.0,
    )

    def group_of(_: str) -> str:
        return group

    return Worker(stage, replace(around, publisher=counted, group_of=group_of, bounds=BOUNDS))


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a rebuild is, in offsets of the topics (compacted ones hold fewer records)."""

    done: int
    whole: int
    """Up to the ends taken when the namespace was made."""
    behind: int
    """Up to the ends now."""
    records: int
    """Written by this process."""
    unreadable: int


@dataclass(slots=True)
class Rebuilding:
    """Fills one namespace until it has everything there is; `shown` hears of progress."""

    namespace: Namespace
    places: Places
    noted: Noted
    shown: Callable[[Progress], None] = lambda _: None
    counted: Counted = field(default_factory=Counted)
    _told: int = 0

    def worker(self, row: Stage, name: str, around: Surroundings) -> Worker:
        """The writer's row of the table under the namespace's name, with the namespace's group."""
        return silent_worker(row, name, self.namespace.group, self.counted, around)

    async def run(
        self, worker: Worker, then: Callable[[], Awaitable[None]] | None = None, *, follow: bool
    ) -> None:
        """Work until all is in (with `follow`, until cancelled); `then` runs meanwhile, once it is."""
        working = asyncio.create_task(worker.run())
        steps = asyncio.create_task(self._steps(then, follow=follow))
        try:
            await asyncio.wait([working, steps], return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
                raise EdenError("the rebuild has stopped by itself", "Run the same command again.")
            steps.result()
        finally:
            steps.cancel()
            worker.stop()
            await asyncio.wait([working, steps], timeout=LEAVE_SECONDS)
            await self._last_look()

    async def _steps(self, then: Callable[[], Awaitable[None]] | None, *, follow: bool) -> None:
        await self.up_to_now()
        await self.noted.caught_up(self.namespace.id, datetime.now(UTC))
        if then is not None:
            await then()
        if follow:
            await self._look_for_ever()

    async def up_to_now(self) -> None:
        """Return once all is in that was in the topics at a moment after the call."""
        ends = await until_done(self.places.ends)
        begun, since = asyncio.get_running_loop().time(), 0.0
        while await until_done(lambda: self.look(ends)):
            if (now := asyncio.get_running_loop().time() - begun) - since > NOTE_SECONDS:
                since = now
                await self.note()
            await asyncio.sleep(LOOK_SECONDS)
        await self.note()

    async def look(self, ends: Mapping[TopicPartition, int]) -> int:
        """Offsets that are left up to `ends`; shown too."""
        reached = await self._reached()
        left = behind(reached, ends, self.namespace.places)
        self.shown(progress(self.namespace, left, self.counted))
        return left

    async def _reached(self) -> Mapping[TopicPartition, int]:
        reached = await self.places.reached()
        self.namespace = self.namespace.model_copy(update={"places": passed(self.namespace.places, reached)})
        return reached

    async def note(self) -> None:
        """Keep how far it is, for `eden namespace show`."""
        more = self.counted.unreadable - self._told
        self._told += more
        await self.noted.reached(self.namespace.id, self.namespace.places, more)

    async def _look_for_ever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.up_to_now()

    async def _last_look(self) -> None:
        """Not shown: the command has said its last word."""
        with suppress(KafkaError, OSError):
            await self._reached()
            await self.note()


def progress(namespace: Namespace, left: int, counted: Counted) -> Progress:
    """How far a namespace is."""
    places = namespace.places
    done = sum(min(one.reached, one.end) - one.begin for one in places)
    whole = sum(one.end - one.begin for one in places)
    return Progress(done, whole, left, counted.records, counted.unreadable)
