"""The store of facts that the settings name; `auto` asks the server, with the first search."""

import asyncio
from collections.abc import Sequence
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.context.context_feed import ContextChange
from eden_memory.logs import LibraryLogger
from eden_memory.models.question import Embedder
from eden_memory.names import Names
from eden_memory.search.atlas_list_store import AtlasFactLists
from eden_memory.search.cached_scope_store import Kept
from eden_memory.search.fact_candidates import Ranked, When
from eden_memory.search.plain_list_store import PlainFactLists
from eden_memory.search.search_index_store import TEXT_INDEX, VECTOR_INDEX, found
from eden_memory.settings import Settings

log = LibraryLogger()

Database = AsyncDatabase[dict[str, Any]]
Lists = AtlasFactLists | PlainFactLists


class ChosenFactLists:
    """FactLists as configured. It has no change stream of its own: somebody hands on what a ContextFeed says
    (:meth:`changed`, :meth:`live`; eden_memory.context.cached_contexts.Contexts.follow does). Until then each
    search asks MongoDB for revisions. `kept`: as HeldScopes tells it.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        embedder: Embedder,
        *,
        kept: Kept = lambda _bytes, _scopes, _evicted: None,
    ) -> None:
        self._settings, self._database, self._embedder = settings, database, embedder
        self._kept = kept
        self._chosen: Lists | None = None
        self._is_live = False
        self._choosing = asyncio.Lock()

    async def semantic(
        self, scope_keys: Sequence[str], vectors: Sequence[bytes], most: int, least: float, when: When
    ) -> Sequence[Sequence[Ranked]]:
        """As the chosen store finds them."""
        lists = self._chosen or await self.chosen()
        return await lists.semantic(scope_keys, vectors, most, least, when)

    async def textual(
        self, scope_keys: Sequence[str], queries: Sequence[str], most: int, least: float, when: When
    ) -> Sequence[Sequence[Ranked]]:
        """As the chosen store finds them."""
        lists = self._chosen or await self.chosen()
        return await lists.textual(scope_keys, queries, most, least, when)

    def changed(self, changed: ContextChange) -> None:
        """Drop what a change of a ContextFeed made stale."""
        if isinstance(self._chosen, PlainFactLists):
            self._chosen.told(changed)

    def live(self, live: bool) -> None:
        """Whether the ContextFeed hears of everything from now on."""
        self._is_live = live
        if isinstance(self._chosen, PlainFactLists):
            self._chosen.live(live)

    async def chosen(self) -> Lists:
        """Which one it is."""
        async with self._choosing:
            if self._chosen is None:
                self._chosen = await self._choose()
        return self._chosen

    async def close(self) -> None:
        """End what runs in the background."""
        if self._chosen is not None:
            await self._chosen.close()

    async def _choose(self) -> Lists:
        names, search, model = self._settings.names, self._settings.search, self._embedder.model
        atlas = search.adapter == "atlas" or (
            search.adapter == "auto" and await has_search(self._database, names)
        )
        log.info("facts are searched", by="atlas" if atlas else "this process", asked_for=search.adapter)
        if atlas:
            return AtlasFactLists(self._database, names, model, embedder=self._embedder)
        lists = PlainFactLists(
            self._database,
            names,
            model,
            embedder=self._embedder,
            most_bytes=search.memory_bytes,
            kept=self._kept,
        )
        lists.live(self._is_live)
        return lists


async def has_search(database: Database, names: Names) -> bool:
    """Whether both search indexes answer."""
    there = await found(database[names["facts"]]) or ()
    answering = {str(mapping["name"]) for mapping in there if mapping.get("queryable")}
    return {VECTOR_INDEX, TEXT_INDEX} <= answering
