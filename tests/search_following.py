"""A change stream for kept scopes alone, where no contexts are kept beside them."""

import asyncio

from eden_memory.context.context_feed import Client, ContextFeed, feeds
from eden_memory.search.plain_list_store import PlainFactLists
from eden_memory.settings import Settings


class Following:
    """Begun in the event loop that searches; while its stream is away, searches ask MongoDB for revisions."""

    def __init__(self, client: Client, settings: Settings, lists: PlainFactLists) -> None:
        self._lists = lists
        self._live = asyncio.Event()
        self._watch = ContextFeed(client, feeds(settings), lists.changed, self._told)
        self._running = asyncio.create_task(self._watch.run())

    async def ready(self) -> None:
        """Wait until every change is told."""
        await self._live.wait()

    async def close(self) -> None:
        """Stop."""
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    def _told(self, live: bool) -> None:
        (self._live.set if live else self._live.clear)()
        self._lists.live(live)
