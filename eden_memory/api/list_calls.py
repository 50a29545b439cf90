"""Looking at what is stored: lists by page, histories, numbers, changes as they come."""

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from typing import Any

from eden_memory.access.visible import Asker, VisibleMemory
from eden_memory.api.memory_changes import changes
from eden_memory.app.memory import SharedMemory
from eden_memory.app.readers import Readers, consolidation_status, scope_stats
from eden_memory.memory.browsing_store import Browsing, Filters
from eden_memory.memory.results import (
    BlobView,
    ConsolidationStatus,
    FactHistory,
    FactView,
    MemoryChange,
    Page,
    ReflectionView,
    ScopeStats,
)
from eden_memory.mongo.application_ids import typed, typed_or_none
from eden_memory.schemas.scopes import ScopeKind


class AgentCalls:
    """Ids are given as the application has them; NotAnId for anything else."""

    def __init__(self, memory: SharedMemory, agent_id: Any, asked_by: str) -> None:
        self.memory = memory
        self._agent_id, self._asked_by = typed(agent_id, "agent"), asked_by
        self.changes_shared: bool | None = None
        """Whether what others see, too, may be edited, retired and forgotten."""

    def _asked(self, session: Any, user: Any) -> Asker:
        return Asker(self._agent_id, typed_or_none(session, "session"), typed_or_none(user, "user"))

    async def _seen(self, session: Any, user: Any) -> tuple[Asker, VisibleMemory, Readers]:
        """Return the asker, what it may see now, and the readers: one namespace for the whole call."""
        asked, readers = self._asked(session, user), await self.memory.current()
        return asked, await readers.contexts.view(asked), readers


class ListCalls(AgentCalls):
    """Each is about what the user may see in the session, or outside of any; without a user, what nobody's is."""

    def _browsing(self, readers: Readers) -> Browsing:
        return Browsing(self.memory.database, readers.settings.names)

    async def history(self, fact_id: str, *, session: Any = None, user: Any = None) -> FactHistory:
        """A fact with its earlier texts, why each came to be, what it rests on and what it cost. NotFound."""
        asked, view, readers = await self._seen(session, user)
        return await self._browsing(readers).history(asked, view, fact_id)

    async def list_facts(
        self,
        *,
        session: Any = None,
        user: Any = None,
        scopes: Sequence[ScopeKind] | None = None,
        active: bool | None = True,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[FactView]:
        """The visible facts, newest first; `active` None: retired ones too, False: these alone.

        `since` ≤ valid_from < `until`; the order is that of formed_at. `limit` 1 to 200; `cursor` is the last page's:
        what is formed meanwhile neither repeats nor hides what was there. Invalid.
        """
        filters = Filters(scopes, active, since, until, limit, cursor)
        asked, view, readers = await self._seen(session, user)
        return await self._browsing(readers).facts(asked, view, filters)

    async def list_reflections(
        self,
        *,
        session: Any = None,
        user: Any = None,
        scopes: Sequence[ScopeKind] | None = None,
        absorbed: bool | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[ReflectionView]:
        """The visible reflections, newest first; `absorbed`: by a blob, or not; None: either.

        `since` ≤ said_at < `until`. Else as facts.
        """
        filters = Filters(scopes, absorbed, since, until, limit, cursor)
        asked, view, readers = await self._seen(session, user)
        return await self._browsing(readers).reflections(asked, view, filters)

    async def list_blobs(
        self, *, session: Any = None, user: Any = None, scopes: Sequence[ScopeKind] | None = None
    ) -> list[BlobView]:
        """The blobs of the visible scopes with their earlier versions, from broad to narrow."""
        filters = Filters(scopes)
        asked, view, readers = await self._seen(session, user)
        return await self._browsing(readers).blobs(asked, view, filters)

    async def get_memory_stats(self, session: Any = None, user: Any = None) -> dict[str, ScopeStats]:
        """The visible scopes in numbers, by label (`agent`, `user`, `shard:<name>`, …)."""
        _, view, readers = await self._seen(session, user)
        return await scope_stats(self.memory.database, readers.settings.names, view)

    async def get_consolidation_status(
        self, session: Any = None, user: Any = None
    ) -> dict[str, ConsolidationStatus]:
        """Buffers and thresholds of the visible scopes, by label."""
        _, view, _ = await self._seen(session, user)
        return consolidation_status(view)

    async def export_user(self, user: Any) -> dict[str, list[dict[str, Any]]]:
        """Everything held about a user, over all sessions and agents, by collection; plain JSON values."""
        return await self.memory.export_user(user)

    def changes(
        self, *, session: Any = None, user: Any = None, after: str | None = None
    ) -> AsyncGenerator[MemoryChange]:
        """Changes of the visible scopes as they are committed; `after` (a change's id) goes on from there.

        Several changes of a scope may come as one, the newest: a slow reader holds up nothing and misses nothing.
        """
        return changes(self.memory, self._asked(session, user), after)
