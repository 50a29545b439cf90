"""A backup of MongoDB was restored: what was forgotten since is forgotten again, before anything else runs.

Forgetting and the writer note in MongoDB how far their groups commit (Stage.noted). A MongoDB that has noted less
than Kafka has committed is older than Kafka. Then readers show nothing, all marks are restored from
`memory.forgotten`, and both stages themselves read their topics from the beginning. What was formed since the backup
comes back, too, and no version number is given twice. If this is killed, the next `eden run` goes on.
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from time import monotonic

from aiokafka import TopicPartition

from eden_memory.assembly.supervisor import MadeAnew
from eden_memory.errors import EdenError, MemoryRestored
from eden_memory.forgetting.forgetting_rules import mark_of
from eden_memory.forgetting.forgetting_store import MongoForgettingStore
from eden_memory.forgetting.mark_store import own
from eden_memory.kafka.groups import GroupAdmin
from eden_memory.kafka.topic_admin import TopicAdmin
from eden_memory.kafka.topic_reading import (
    Offsets,
    TopicOffsets,
)
from eden_memory.kafka.topics import Topics
from eden_memory.logs import LibraryLogger
from eden_memory.mongo.leases import MongoLease
from eden_memory.processors.pipeline import ATLAS_WRITER, FORGETTING
from eden_memory.replay.group_progress import GroupProgress, recorded
from eden_memory.replay.installation import Installation
from eden_memory.replay.namespaces.namespace_store import is_restored
from eden_memory.replay.restore.restored_store import MongoLost
from eden_memory.schemas.documents import Context
from eden_memory.schemas.events import Forgotten, ScopeChanged
from eden_memory.stages.controls import MongoGroupNotes
from eden_memory.stages.patience import until_done
from eden_memory.stages.process import State
from eden_memory.tasks import all_of, run_until_first

log = LibraryLogger()
LEASE, LEASE_SECONDS = "restored", 30.0
NOTED = (ATLAS_WRITER, FORGETTING)
"""The stages whose offsets MongoDB notes: readers show what these have done."""
GONE_SECONDS = 20.0
"""Seconds until Kafka has dropped the members of processes that were killed."""
LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class RestoredBackup:
    """Finds that MongoDB is older than Kafka, and has the stages read again what MongoDB does not know."""

    at: Installation

    async def found(self) -> bool:
        """Return whether what was forgotten has to be forgotten again first; all is prepared for that then."""
        if await self._is_older():
            lease = MongoLease(self.at.database[self.at.settings.names["leases"]], LEASE, LEASE_SECONDS)
            async with lease.held():
                if await self._is_older():  # no other process was first
                    await self._prepare()
        return is_restored(await self.at.live.read())

    async def until_forgotten(self) -> None:
        """Return once forgetting and the writer have read everything, and readers show memory again."""
        begun = monotonic()
        groups = {self._group(stage): self._topics.read_by(stage) for stage in NOTED}
        async with GroupProgress(self.at.kafka, groups) as progress:
            await run_until_first(progress.until_quiet(), self._until_reopened())
        if not await self._is_shut():
            return
        await revisions_beyond(self.at, self._topics, MongoLost(self.at.database, self.at.settings.names))
        await self.at.live.reopen()
        seconds = round(monotonic() - begun, 1)
        log.info("what was forgotten since the backup is forgotten again", seconds=seconds)

    async def _until_reopened(self) -> None:
        """Return once another process has seen all that was to be read."""
        while True:
            if not await self._is_shut():
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def _is_shut(self) -> bool:
        return is_restored(await until_done(self.at.live.read))

    async def _is_older(self) -> bool:
        """Return whether Kafka knows of commits that MongoDB has not noted."""
        read = {topic: stage for stage in NOTED for topic in self._topics.read_by(stage)}
        known = await asyncio.to_thread(TopicAdmin(self.at.admin).identities, list(read))
        for topic, identity in known.items():
            await self._notes.heed_topic(self._group(read[topic]), topic, identity)
        async with GroupAdmin(self.at.kafka) as groups:
            committed = {stage: await groups.committed(self._group(stage)) for stage in NOTED}
        reached = {stage: await self._notes.reached(self._group(stage)) for stage in NOTED}
        return any(
            offset > reached[stage].get((tp.topic, tp.partition), 0)
            for stage, offsets in committed.items()
            for tp, offset in offsets.items()
        )

    async def _prepare(self) -> None:
        """Let readers show nothing, restore the marks, and have forgetting and the writer read everything again.

        Once the marks stand, no stage remembers what is forgotten.
        """
        log.warning("MongoDB is older than Kafka: a backup was restored")
        await self.at.live.shut()
        await self.at.database[self.at.settings.names[Context.COLLECTION]].delete_many({})
        marks = await marks_again(self.at, self._topics)
        log.info("the marks of what is forgotten are restored", count=marks)
        for stage in NOTED:
            await self._read_again(stage)

    async def _read_again(self, stage: str) -> None:
        """Set a group that nobody is in back to the beginning of its topics."""
        group, until = self._group(stage), monotonic() + GONE_SECONDS
        topics = TopicOffsets(self.at.kafka, self._topics.read_by(stage))
        async with topics, GroupAdmin(self.at.kafka) as groups:
            begins = await topics.begins()
            while True:
                try:
                    await self.at.set_group(groups, group, begins, anew=True)
                    return
                except EdenError:
                    if monotonic() > until:
                        raise
                await asyncio.sleep(LOOK_SECONDS)

    @property
    def _topics(self) -> Topics:
        return self.at.topics(self.at.settings.placement)

    def _group(self, stage: str) -> str:
        return self._topics.group(stage)

    @property
    def _notes(self) -> MongoGroupNotes:
        return MongoGroupNotes(self.at.database, self.at.settings.names)


class ForgettingAgain:
    """The part of `eden run` that ends once what was forgotten since the backup is forgotten again."""

    name = "restored"

    def __init__(self, backup: RestoredBackup) -> None:
        self._backup, self._stopping = backup, asyncio.Event()

    async def run(self) -> None:
        """Wait for the stages that run beside it, here or elsewhere, then raise MadeAnew; or until `stop`."""
        await run_until_first(self._backup.until_forgotten(), self._stopping)
        if not self._stopping.is_set():
            raise MadeAnew

    def stop(self) -> None:
        """End `run`."""
        self._stopping.set()

    def state(self) -> State:
        """Never ready: readers show nothing, and no memory is formed."""
        return State(False, MemoryRestored().what)


async def marks_again(at: Installation, topics: Topics, done: Offsets | None = None) -> int:
    """Store the marks of all Forgotten records as the forgetting stage does, and return how many there are.

    `done`: only of records below these offsets; None: of all.
    """
    pipeline, count = at.settings.placement.pipeline, 0
    store = MongoForgettingStore(at.database, at.settings.names, pipeline)
    async for batch in recorded(at.kafka, topics.topic_of(Forgotten)):
        marking: list[Awaitable[None]] = []
        for read, envelope, record in batch:
            event = own(read, pipeline) if isinstance(read, Forgotten) else None
            place = TopicPartition(record.topic, record.partition)
            if event is not None and (done is None or record.offset < done.get(place, 0)):
                by = event.caused_by or envelope.id
                marking.append(store.mark([mark_of(event)], by, event.forgotten_at))
        await all_of(*marking)
        count += len(marking)
    return count


async def revisions_beyond(at: Installation, topics: Topics, lost: MongoLost) -> None:
    """Let the revisions of scopes continue above those that were announced."""
    async for batch in recorded(at.kafka, topics.topic_of(ScopeChanged)):
        highest: dict[str, int] = {}
        for event, *_ in batch:
            if isinstance(event, ScopeChanged):
                highest[event.scope.key] = max(event.revision, highest.get(event.scope.key, 0))
        await lost.beyond(highest)
