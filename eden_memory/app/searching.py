"""The search engine of a process: the one that it was given, or our own, built at the first search."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.context.cached_contexts import ContextFollower
from eden_memory.schemas.scopes import Scope
from eden_memory.search.search_requests import SearchReport, SearchRequest
from eden_memory.settings import Settings

if TYPE_CHECKING:
    from eden_memory.app.own_search import OwnSearch

CLOSE_SECONDS = 10.0
"""Seconds for running searches to end."""


class Engine(Protocol):
    """Searches facts of the given scopes."""

    async def find(self, scopes: Sequence[Scope], request: SearchRequest) -> SearchReport:
        """Return the facts, best first, and how they were found."""
        ...


class Searching:
    """The search engine of one namespace; its models are loaded with the first search.

    Make it in the event loop that uses it.
    """

    def __init__(
        self,
        settings: Settings,
        database: AsyncDatabase[dict[str, Any]],
        engine: Engine | None,
        follow: Callable[[ContextFollower], None],
    ) -> None:
        self._settings, self._database, self._follow = settings, database, follow
        self._engine = engine
        self._own: OwnSearch | None = None
        self._loading = asyncio.Lock()
        self._searches = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @asynccontextmanager
    async def engine(self) -> AsyncGenerator[Engine]:
        """Lend the engine; `close` waits for it. EdenError if the embedder is a provider that has no key."""
        self._searches += 1
        self._idle.clear()
        try:
            yield self._engine or await self._loaded()
        finally:
            self._searches -= 1
            if not self._searches:
                self._idle.set()

    async def take_over(self, former: "Searching") -> None:
        """Search with the models that the search of the former namespace has loaded, if it has."""
        if former._own is not None:
            self._use(await former._own.moved(self._settings))

    async def close(self) -> None:
        """Close our own search once nobody uses the engine any more."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._idle.wait()
        if self._own is not None:
            await self._own.close()

    async def _loaded(self) -> Engine:
        async with self._loading:
            if self._engine is not None:
                return self._engine
            from eden_memory.app.own_search import OwnSearch  # noqa: PLC0415 - loads models and their SDKs

            return self._use(await OwnSearch.opened(self._settings, self._database))

    def _use(self, own: "OwnSearch") -> Engine:
        self._own, self._engine = own, own.engine
        if own.cache is not None:
            self._follow(own.cache)
        return own.engine
