"""The store of facts that the settings name; `auto` asks the server."""

from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.logs import LibraryLogger
from eden_memory.models.question import Embedder
from eden_memory.search.atlas_list_store import AtlasFactLists
from eden_memory.search.cached_scope_store import OnUse
from eden_memory.search.plain_list_store import PlainFactLists
from eden_memory.search.search_index_store import has_search
from eden_memory.settings import Settings

log = LibraryLogger()

Database = AsyncDatabase[dict[str, Any]]


async def searches_by_atlas(settings: Settings, database: Database) -> bool:
    """Return whether Atlas' search indexes rank facts, rather than this process."""
    adapter = settings.search.adapter
    atlas = adapter == "atlas" or (adapter == "auto" and await has_search(database, settings.names))
    log.info("facts are searched", by="atlas" if atlas else "this process", asked_for=adapter)
    return atlas


def fact_lists(
    settings: Settings, database: Database, embedder: Embedder, on_use: OnUse, *, atlas: bool
) -> AtlasFactLists | PlainFactLists:
    """Build the lists; plain ones ask MongoDB for revisions until a change feed keeps them fresh."""
    if atlas:
        return AtlasFactLists(database, settings.names, embedder.model, embedder=embedder)
    return PlainFactLists(
        database,
        settings.names,
        embedder.model,
        embedder=embedder,
        most_bytes=settings.search.memory_bytes,
        on_use=on_use,
    )
