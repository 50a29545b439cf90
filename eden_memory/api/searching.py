"""Searching facts: by the engine that was given, or one of our own from the first query on."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.api.contexts import Follower
from eden_memory.api.search.requests import SearchReport, SearchRequest
from eden_memory.settings import Settings
from schemas.scopes import Scope

if TYPE_CHECKING:
    from eden_memory.api.own_search import OwnSearch


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
        follow: Callable[[Follower], None],
    ) -> None:
        self._settings, self._database, self._follow = settings, database, follow
        self._engine = engine
        self._own: OwnSearch | None = None

    async def find(self, scopes: Sequence[Scope], request: SearchRequest) -> SearchReport:
        """EdenError if the embedder is a provider that has no key."""
        if self._engine is None:
            from eden_memory.api.own_search import OwnSearch  # noqa: PLC0415 - loads models and their SDKs

            self._own = OwnSearch(self._settings, self._database)
            self._follow(self._own.lists)
            self._engine = self._own.engine
        return await self._engine.find(scopes, request)

    async def close(self) -> None:
        """Let go of what is our own."""
        if self._own is not None:
            await self._own.close()
