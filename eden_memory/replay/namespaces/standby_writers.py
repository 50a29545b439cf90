"""The work of `eden run` for standby namespaces: silent writers, forgetting, and what a switch left.

A stopped rebuild gets only tombstones: it does not go on by itself. What its command writes later does not survive an
earlier tombstone (invariant mark-read-write-mark).
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from aiokafka.errors import KafkaError

from eden_memory.assembly.handlers import MongoClient
from eden_memory.assembly.stage_parts import stage_parts
from eden_memory.errors import EdenError, describe
from eden_memory.kafka.topic_reading import TopicOffsets
from eden_memory.logs import LibraryLogger
from eden_memory.mongo.client import server_time
from eden_memory.names import Placement
from eden_memory.processors.pipeline import ATLAS_WRITER, FORGETTING
from eden_memory.replay.group_progress import GroupProgress
from eden_memory.replay.installation import Installation
from eden_memory.replay.namespaces.namespace_store import WRITER, beside, half_formed, sweeping_of
from eden_memory.replay.rebuild.namespace_rebuild import Counted, silent_writer
from eden_memory.replay.reform.reform_store import MongoReforms, at_work
from eden_memory.schemas.documents import Live, Namespace
from eden_memory.settings import Settings
from eden_memory.stages.process import ProcessPart, State, Together
from eden_memory.tasks import Unawaited, end, first_of

log = LibraryLogger("eden.shadows")

Made = Callable[[], AbstractAsyncContextManager[Sequence[ProcessPart]]]
LOOK_SECONDS, IDLE_LOOK_SECONDS = 1.0, 4.0
"""Between two looks while something runs, and while nothing does."""
AGAIN_SECONDS = 10.0
"""Seconds after which parts that could not go on are started again."""
HANDED_OVER_AFTER = timedelta(seconds=30)
"""By then every process has noticed a switch: no writer is silent any more that should not be."""


def standby_writers(settings: Settings, client: MongoClient) -> "StandbyWriters":
    """Return the part that runs them; `settings` are those of the live namespace."""
    at = Installation(settings, client[settings.mongodb.database])
    return StandbyWriters(partial(_wanted, at), settings.run.drain_seconds)


@dataclass(slots=True)
class _Standby:
    """The parts of one namespace, started again whatever goes wrong."""

    name: str
    made: Made
    drain_seconds: float
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    together: Together | None = None

    async def run(self) -> None:
        """Run until `stop`."""
        while not self.stopping.is_set():
            try:
                async with self.made() as parts:
                    self.together = Together(parts, self.drain_seconds)
                    if not self.stopping.is_set():
                        await self.together.run()
            except Exception as error:  # noqa: BLE001 - the edge of a task of its own: it is started again
                log.error("cannot go on, is begun again", beside=self.name, reason=describe(error))
                await _unless(self.stopping, AGAIN_SECONDS)

    def stop(self) -> None:
        """Drain the parts and end `run`."""
        self.stopping.set()
        if self.together is not None:
            self.together.stop()


class StandbyWriters:
    """Asks regularly what is `wanted`, by name, and runs it; nothing of it holds up live memory."""

    name = "shadows"

    def __init__(self, wanted: Callable[[], Awaitable[Mapping[str, Made]]], drain_seconds: float) -> None:
        self._wanted, self._drain_seconds = wanted, drain_seconds
        self._running: dict[str, tuple[_Standby, asyncio.Task[None]]] = {}
        self._unawaited = Unawaited()
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Run until `stop`."""
        looking = asyncio.create_task(self._look())
        try:
            await first_of(looking, self._stopping)
            # a look that is cancelled leaves connections
            await asyncio.wait([looking], timeout=self._drain_seconds)
        finally:
            await end([looking])
            await self._end(list(self._running))
        if not looking.cancelled():
            looking.result()

    def stop(self) -> None:
        """End `run`."""
        self._stopping.set()

    def state(self) -> State:
        """Return always ready: live memory does not wait for any of them."""
        return State(True, ", ".join(sorted(self._running)) or "nothing beside live")

    async def _look(self) -> None:
        while not self._stopping.is_set():
            self._unawaited.check()
            try:
                wanted = await self._wanted()
            except Exception as error:  # noqa: BLE001 - the edge of a task of its own: it looks again
                log.warning("it is not known what is beside live", reason=describe(error))
            else:
                await self._end([name for name in self._running if name not in wanted])
                for name in wanted.keys() - self._running.keys():
                    self._begin(name, wanted[name])
            await _unless(self._stopping, LOOK_SECONDS if self._running else IDLE_LOOK_SECONDS)

    def _begin(self, name: str, made: Made) -> None:
        standby = _Standby(name, made, self._drain_seconds)
        self._running[name] = standby, self._unawaited.add(asyncio.create_task(standby.run()))

    async def _end(self, names: Sequence[str]) -> None:
        ended = [self._running.pop(name) for name in names]
        for standby, _ in ended:
            standby.stop()
        if tasks := [task for _, task in ended]:
            await asyncio.wait(tasks, timeout=self._drain_seconds)
            await end(tasks)


async def _unless(stopping: asyncio.Event, seconds: float) -> None:
    """Wait so long, or until the event is set."""
    with suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), seconds)


async def _wanted(at: Installation) -> Mapping[str, Made]:
    """Return by name what has to run now; nothing new while the process has not followed a switch yet."""
    document, placement = await at.live.read(), at.settings.placement
    known = await at.namespaces.all()
    found, left = beside(placement, known), await _left_to_itself(at, known)
    wanted: dict[str, Made] = {
        silent.memory: partial(_silent, at, silent) for silent in found.silent if silent.memory not in left
    }
    for other in found.forgetting:
        if other.memory not in left:
            stages = partial(stage_parts, at.settings.placed(other), (FORGETTING, ATLAS_WRITER))
            wanted[f"{other.memory} with its pipeline"] = stages
    for stopped in found.sweeping:
        wanted[f"{stopped.memory} as it was left"] = partial(_sweeping, at, stopped)
    if document is not None and document.memory == placement.memory and document.handover is not None:
        if await _handed_over(at, document, document.handover):
            await at.live.handed_over(document.handover)
        else:
            wanted[document.handover] = partial(_announcing, at, document.handover)
    return wanted


async def _left_to_itself(at: Installation, namespaces: Sequence[Namespace]) -> set[str]:
    """Return the reforms that a command is forming, which forgets itself, and those without topics or state yet."""
    reforms = [namespace.id for namespace in namespaces if half_formed(namespace)]
    if not reforms:
        return set()
    unrestored = await MongoReforms(at.database, at.settings.mongodb.prefix).unrestored(reforms)
    return unrestored | await at_work(at.database, at.settings.names, reforms)


@asynccontextmanager
async def _silent(at: Installation, placement: Placement) -> AsyncGenerator[Sequence[ProcessPart]]:
    """Yield the silent writer of a memory; the tombstone-only writer's group, which it replaces, goes."""
    group = at.topics(placement).group(WRITER)
    removing = asyncio.create_task(_removed(at, sweeping_of(group)))
    try:
        yield [silent_writer(at, placement, f"{WRITER}.{placement.memory}", group, Counted())]
    finally:
        await end([removing])


@asynccontextmanager
async def _sweeping(at: Installation, placement: Placement) -> AsyncGenerator[Sequence[ProcessPart]]:
    """Yield the tombstone-only writer of a stopped rebuild; its group goes once the rebuild is complete."""
    topics = at.topics(placement)
    group = topics.group(WRITER)
    own = sweeping_of(group)
    await begin_where(at, topics.read_by(WRITER), own, group)
    name = sweeping_of(f"{WRITER}.{placement.memory}")
    yield [silent_writer(at, placement, name, own, Counted(), only_tombstones=True)]
    found = await at.namespaces.get(placement.memory)
    if found is None or found.state != "filling":
        with suppress(EdenError):  # another process is in it still, and removes it
            await at.forget_group(own)


async def begin_where(at: Installation, topics: Sequence[str], group: str, other: str) -> None:
    """Let a group begin at the committed offsets of the `other` one, or at the beginning where it has none.

    A group that has begun already stays where it is.
    """
    async with TopicOffsets(at.kafka, topics) as offsets, at.groups as groups:
        begun, reached = await offsets.begins(), await groups.committed(other)
        try:
            await at.set_group(groups, group, {tp: reached.get(tp, begin) for tp, begin in begun.items()})
        except EdenError:  # another process was first, and is in it
            if begun.keys() - (await groups.committed(group)).keys():
                raise


async def _removed(at: Installation, group: str) -> None:
    """Return once the group is gone: a member that was killed counts for ten seconds."""
    while True:
        try:
            await at.forget_group(group)
        except (EdenError, KafkaError):
            await asyncio.sleep(AGAIN_SECONDS)
        else:
            return


@asynccontextmanager
async def _announcing(at: Installation, handover: str) -> AsyncGenerator[Sequence[ProcessPart]]:
    """Yield the live writer once more, from where the former one had announced everything; its group goes then."""
    async with stage_parts(at.settings, (ATLAS_WRITER,), group_of=lambda _: handover) as parts:
        yield parts
    document = await at.live.read()
    if document is None or document.handover != handover:
        with suppress(EdenError):  # another process is in it still, and removes it
            await at.forget_group(handover)


async def _handed_over(at: Installation, live: Live, handover: str) -> bool:
    if await server_time(at.database.client) < live.switched_at + HANDED_OVER_AFTER:
        return False
    topics = at.topics(at.settings.placement).read_by(WRITER)
    async with GroupProgress(at.kafka, {handover: topics}) as progress:
        return not await progress.behind(await progress.ends())
