"""Pushes what may change a context, by MongoDB change streams."""

import asyncio
from collections.abc import Callable
from typing import Any

from pymongo import AsyncMongoClient
from pymongo.asynchronous.change_stream import AsyncDatabaseChangeStream
from pymongo.errors import PyMongoError

from eden_memory.context.change_feed import Changed, Feed, authors_feed, feeds
from eden_memory.logs import LibraryLogger
from eden_memory.settings import Settings

log = LibraryLogger()

Client = AsyncMongoClient[dict[str, Any]]
AWAIT_MS = 500
SILENT_SECONDS = 3.0
"""A server that does not even say that nothing happened for so long is taken for gone."""
AGAIN_SECONDS = 1.0


class ContextFeed:
    """`on_change` for each change; `on_live(False)` while something may be missed, `on_live(True)` from then on.

    One stream, or two where the application's database is not the one that memory is kept in; with `authors` another
    one over the application's messages, for those who keep contexts that nobody asks them for.
    """

    def __init__(
        self,
        client: Client,
        settings: Settings,
        on_change: Callable[[Changed], None],
        on_live: Callable[[bool], None],
        *,
        authors: bool = False,
    ) -> None:
        self._client, self._feeds = client, feeds(settings)
        if authors:
            self._feeds["/authors"] = authors_feed(settings)
        self._on_change, self._on_live = on_change, on_live
        self._open: set[str] = set()
        self._stopping = False

    async def run(self) -> None:
        """Until cancelled.

        The driver may lose a cancellation that arrives together with an answer: so the streams are told, too.
        """
        self._stopping = False
        following = [asyncio.create_task(self._follow(*item)) for item in self._feeds.items()]
        try:
            ended, _ = await asyncio.wait(following, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            self._stopping = True
            for task in following:
                task.cancel()
            await asyncio.wait(following)
            self._on_live(False)

    async def _follow(self, name: str, feed: Feed) -> None:
        while not self._stopping:
            try:
                async with asyncio.timeout(SILENT_SECONDS * 4):
                    stream = await self._client[feed.database].watch(
                        feed.pipeline, full_document=feed.full_document, max_await_time_ms=AWAIT_MS
                    )
                async with stream:
                    self._opened(name)
                    await self._read(stream, feed)
            except (PyMongoError, TimeoutError) as error:
                log.warning("contexts are not cached: the change stream broke", reason=type(error).__name__)
            finally:
                self._open.discard(name)
                self._on_live(False)
            if not self._stopping:
                await asyncio.sleep(AGAIN_SECONDS)

    def _opened(self, name: str) -> None:
        """What was changed before is read from now on; what changes after it is told."""
        self._open.add(name)
        if len(self._open) == len(self._feeds):
            self._on_change(Changed("everything"))
            self._on_live(True)

    async def _read(self, stream: AsyncDatabaseChangeStream[dict[str, Any]], feed: Feed) -> None:
        while stream.alive and not self._stopping:
            async with asyncio.timeout(SILENT_SECONDS):
                event = await stream.try_next()
            if event is not None and (changed := feed.changed(event)) is not None:
                self._on_change(changed)
