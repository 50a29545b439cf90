"""Searching facts: by the engine that was given, or one of our own from the first query on."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.context.cached_contexts import ContextFollower
from eden_memory.schemas.scopes import Scope
from eden_memory.search.search_requests import SearchReport, SearchRequest
from eden_memory.settings import Settings

if TYPE_CHECKING:
    from eden_memory.app.own_search import OwnSearch

CLOSE_SECONDS = 10.0
"""Searches that are under way have so long to end."""


class Engine(Protocol):
    """Searches facts of the given scopes."""

    async def find(self, scopes: Sequence[Scope], request: SearchRequest) -> SearchReport:
        """The facts, best first, and how they were found."""
        ...


class Searching:
    """Made in the event loop that uses it; models are imported with the first query only."""

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
        self._searches = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def find(self, scopes: Sequence[Scope], request: SearchRequest) -> SearchReport:
        """EdenError if the embedder is a provider that has no key."""
        if self._engine is None:
            from eden_memory.app.own_search import OwnSearch  # noqa: PLC0415 - loads models and their SDKs

            self._use(OwnSearch(self._settings, self._database))
        assert self._engine is not None
        self._searches += 1
        self._idle.clear()
        try:
            return await self._engine.find(scopes, request)
        finally:
            self._searches -= 1
            if not self._searches:
                self._idle.set()

    async def take_over(self, former: "Searching") -> None:
        """Search with the models that another namespace's search has loaded; it goes on with what it searches."""
        if former._own is not None:
            self._use(former._own.moved(self._settings))
            assert self._own is not None
            await self._own.lists.chosen()

    async def close(self) -> None:
        """Let go of what is our own, once nothing is searched for any more."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._idle.wait()
        if self._own is not None:
            await self._own.close()

    def _use(self, own: "OwnSearch") -> None:
        self._own, self._engine = own, own.engine
        self._follow(own.lists)
