"""The collection `lowered_topics`: settings of topics before a compaction lowered them, so that a kill loses none."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.write_concern import WriteConcern

from eden_memory.errors import Conflict
from eden_memory.kafka.topic_admin import TopicAdmin
from eden_memory.logs import LibraryLogger
from eden_memory.mongo.leases import MongoLease
from eden_memory.names import Names
from eden_memory.schemas.documents import LoweredTopic

Row = dict[str, Any]
LEASE, LEASE_SECONDS, BUSY_SECONDS = "compaction", 15.0, 2.0
LOWERED = {
    "segment.ms": "1000",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "1000",
    "min.cleanable.dirty.ratio": "0.0",
    "file.delete.delay.ms": "1000",
}
"""Settings that make Kafka compact a topic at once; deleted segments leave the disk after a second."""
log = LibraryLogger("eden.compaction")


class LoweredTopics:
    """One installation's topics whose settings are lowered; who changes them holds the lease."""

    def __init__(self, database: AsyncDatabase[Row], names: Names, admin: Mapping[str, Any]) -> None:
        self._lease = MongoLease(database[names["leases"]], LEASE, LEASE_SECONDS)
        durable = database.with_options(write_concern=WriteConcern("majority", j=True))
        self._lowered = durable[names[LoweredTopic.COLLECTION]]
        self._admin = admin

    @asynccontextmanager
    async def alone(self) -> AsyncGenerator[None]:
        """Hold the lease; Conflict where another process has it. A killed one's runs out."""
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(BUSY_SECONDS):
                    await stack.enter_async_context(self._lease.held())
            except TimeoutError:
                raise Conflict(
                    "`eden forget --compact` is running", "It restores the topics at its end; try again then."
                ) from None
            yield

    @asynccontextmanager
    async def lowered(self, topics: Iterable[str]) -> AsyncGenerator[None]:
        """Lower the settings of topics inside, and restore them whatever happens; the lease is held."""
        names, admin = list(topics), await asyncio.to_thread(TopicAdmin, self._admin)
        before = await asyncio.to_thread(admin.overrides, names)
        now = datetime.now(UTC)
        for name in names:
            kept = {setting: before[name].get(setting) for setting in LOWERED}
            row = LoweredTopic(_id=name, settings=kept, lowered_at=now).stored()
            await self._lowered.replace_one({"_id": name}, row, upsert=True)
        try:
            await asyncio.to_thread(admin.configure, dict.fromkeys(names, LOWERED))
            yield
        finally:
            await self.restore()

    async def restore(self) -> list[str]:
        """Restore what a compaction has lowered, also one that was killed; return the topics. The lease is held."""
        rows = [LoweredTopic.model_validate(row) async for row in self._lowered.find()]
        if not rows:
            return []
        admin = await asyncio.to_thread(TopicAdmin, self._admin)
        there = set(await asyncio.to_thread(admin.names))
        wanted = {row.id: row.settings for row in rows if row.id in there}
        await asyncio.to_thread(admin.configure, wanted)
        await self._lowered.delete_many({"_id": {"$in": [row.id for row in rows]}})
        log.info("the settings of compacted topics are restored", topics=len(wanted))
        return sorted(wanted)

    async def restore_left(self) -> list[str]:
        """Restore what a killed compaction has left; nothing while one is running. Conflict then."""
        if await self._lowered.find_one() is None:
            return []
        async with self.alone():
            return await self.restore()
