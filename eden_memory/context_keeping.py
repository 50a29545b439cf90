"""context-cache with what it stands on: the stage's handler, and who tells it that a session's members changed."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError

from eden_memory.domain.context import Showing
from eden_memory.mongo.context_source import MongoContextSource
from eden_memory.mongo.context_watch import Changed, ContextWatch
from eden_memory.mongo.contexts import MongoContexts
from eden_memory.mongo.streams import MongoStreams
from eden_memory.settings import MemorySettings, Settings
from processors.context_cache import ContextCache

log = structlog.get_logger()


def showing_of(memory: MemorySettings) -> Showing:
    """What contexts hold, as settings say."""
    return Showing(
        always_in_context=memory.always_in_context,
        facts_in_context=memory.facts_in_context,
        facts=memory.context_facts,
        age=timedelta(days=memory.context_days),
    )


@asynccontextmanager
async def keeping_contexts(
    settings: Settings, client: AsyncMongoClient[dict[str, Any]], streams: MongoStreams
) -> AsyncGenerator[ContextCache]:
    """The handler; for the block, contexts follow changes of sessions' members too, not only of memory."""
    memory, source = client[settings.mongodb.database], client[settings.source_database]
    cache = ContextCache(
        MongoContextSource(source, memory, settings, streams),
        MongoContexts(memory, settings.mongodb.prefix),
        showing_of(settings.memory),
        timedelta(minutes=settings.memory.active_minutes),
        lambda: datetime.now(UTC),
    )
    members = _Members(cache)
    watch = ContextWatch(client, settings, members.changed, lambda _: None)
    tasks = [asyncio.create_task(watch.run()), asyncio.create_task(members.run())]
    try:
        yield cache
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await cache.close()


class _Members:
    """Rebuilds contexts of sessions whose members may have changed, one round after the other."""

    def __init__(self, cache: ContextCache) -> None:
        self._cache = cache
        self._sessions: set[str] = set()
        self._all = False
        self._woken = asyncio.Event()

    def changed(self, changed: Changed) -> None:
        """Told by the change stream; changes of memory itself come as records."""
        if changed.what == "session":
            self._sessions.add(changed.id)
        elif changed.what in ("everything", "user"):
            self._all = True
        else:
            return
        self._woken.set()

    async def run(self) -> None:
        """Until cancelled; what fails is tried again with the next change, or by the contexts' own TTL."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            sessions, everything = self._sessions, self._all
            self._sessions, self._all = set(), False
            try:
                await (self._cache.refresh_all() if everything else self._cache.sessions_changed(sessions))
            except PyMongoError as error:
                log.warning("contexts not refreshed", reason=f"{type(error).__name__}: {error}")
