"""Searching facts: the engine that was given, or one of our own with the first query."""

from typing import TYPE_CHECKING, Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.settings import Settings

if TYPE_CHECKING:
    from eden_memory.api.facts import FactFinder
    from eden_memory.api.own_search import OwnSearch


class Searching:
    """Made in the event loop that uses it; models are imported with the first query only."""

    def __init__(
        self, settings: Settings, database: AsyncDatabase[dict[str, Any]], engine: "FactFinder | None"
    ) -> None:
        self._settings, self._database = settings, database
        self._engine, self._own = engine, _none()

    @property
    def engine(self) -> "FactFinder":
        """EdenError if the embedder is a provider that has no key."""
        if self._engine is None:
            from eden_memory.api.own_search import OwnSearch  # noqa: PLC0415 - loads models and their SDKs

            self._own = OwnSearch(self._settings, self._database)
            self._engine = self._own.finder
        return self._engine

    async def close(self) -> None:
        """Let go of what is our own."""
        if self._own is not None:
            await self._own.close()


def _none() -> "OwnSearch | None":
    return None
