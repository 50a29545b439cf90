"""`MemoryService`: an agent's memory as its application uses it. MongoDB only: no Kafka, no model but to search."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import structlog

from eden_memory.api.ids import typed, typed_or_none
from eden_memory.api.memory import Client, Memory, utc_now
from eden_memory.api.numbers import consolidation_status, scope_stats
from eden_memory.api.results import (
    Added,
    BlobView,
    ConsolidationStatus,
    FactHistory,
    FactView,
    MemoryChange,
    Page,
    ReflectionView,
    ScopeStats,
)
from eden_memory.domain.context.context import FactLine, one_line
from eden_memory.domain.context.recall import asks_for_past, query_of
from eden_memory.domain.context.visible import Asked, View
from eden_memory.domain.errors import EdenError
from eden_memory.mongo.ids import encode_id
from eden_memory.mongo.source.requests import ask
from eden_memory.settings import Settings
from schemas.documents import InboxFormNow
from schemas.events.forgetting import Forgettable
from schemas.scopes import Scope, ScopeKind

if TYPE_CHECKING:
    from eden_memory.api.facts import FactFinder, FoundFact

log = structlog.get_logger()
RECALLED = 5
Message = Mapping[str, Any]
"""`{"role": "user", "content": "…"}`, with an optional `created_at`."""


class MemoryService:
    """The memory of one agent; ids are given as the application has them (ObjectId, str, int, UUID).

    Alone it makes its own :class:`Memory` by `client` and `settings`, and closes it; a process with several
    agents makes one `Memory` and takes each agent's service from it.
    """

    def __init__(
        self,
        agent_id: Any = "default",
        *,
        client: Client | None = None,
        settings: Settings | None = None,
        engine: "FactFinder | None" = None,
        clock: Callable[[], datetime] = utc_now,
        memory: Memory | None = None,
        asked_by: str = "MemoryService",
    ) -> None:
        self._agent_id, self._asked_by = typed(agent_id, "agent"), asked_by
        self.memory = memory or Memory(settings, client=client, engine=engine, clock=clock)
        self._owns_memory = memory is None
        self._settings = self.memory.settings

    async def __aenter__(self) -> Self:
        self.memory.contexts.watch()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def ready(self) -> None:
        """Wait until contexts are kept, because whatever changes them is heard of."""
        await self.memory.ready()

    async def close(self) -> None:
        """Close the memory, if it is our own."""
        if self._owns_memory:
            await self.memory.close()

    async def get_memory_context(self, session: Any, user: Any = None, message: str | None = None) -> str:
        """The XML for the agent's prompt, "" where there is nothing; `message` is the user's, for recall."""
        view, xml = await self.memory.contexts.get(self._asked(session, user))
        if message is None or not self._settings.memory.search or not asks_for_past(message, xml):
            return xml
        return await self._with_recalled(view, xml, message)

    async def on_session_start(self, session: Any, user: Any = None) -> str:
        """Have the context at hand before the first turn; returns it."""
        return await self.get_memory_context(session, user)

    async def on_session_end(self, session: Any) -> str:
        """The session is over: its last window is formed and its memory consolidated. Returns the request's id."""
        return await self._ask("session_ended", session)

    async def maybe_form_memories(self, session: Any) -> str:
        """Form what is pending in the session now, if anything is. Returns the request's id."""
        return await self._ask("form_now", session)

    async def process_cold_session(self, session: Any) -> str:
        """As :meth:`maybe_form_memories`, without waiting until the session has been idle for long enough."""
        return await self._ask("form_now", session)

    async def search_facts(
        self, queries: Sequence[str] | str, *, session: Any = None, user: Any = None, top_k: int = 10
    ) -> "list[FoundFact]":
        """Facts visible to the user in this session (or outside of any) by meaning, best first; ≤ 3 queries."""
        if not self._settings.memory.search:
            raise EdenError("search is switched off", "EDEN_MEMORY_SEARCH=true switches it on.")
        view = await self._view(session, user)
        wanted = [queries] if isinstance(queries, str) else list(queries)
        return await self.memory.searching.engine.find(_searched(view), wanted, top_k)

    async def add(
        self, text_or_messages: str | Sequence[Message], *, session: Any = None, user: Any = None
    ) -> Added:
        """Remember a text, or messages, without a chat: formed as chat messages are.

        In a `session` they join what is said there. Without one they stand in a session of their own for this
        agent and user (or the agent alone), and are formed at once. Invalid for what is no text.
        """
        raise NotImplementedError

    async def edit(
        self,
        fact_id: str,
        text: str,
        *,
        session: Any = None,
        user: Any = None,
        expected_version: int | None = None,
        reason: str | None = None,
    ) -> str:
        """Give a fact another text; carried out in its scope's order, only if it still stands at `expected_version`.

        Returns the request's id. NotFound, Conflict (it is already at another version).
        """
        raise NotImplementedError

    async def retire(
        self,
        fact_id: str,
        *,
        session: Any = None,
        user: Any = None,
        expected_version: int | None = None,
        reason: str | None = None,
    ) -> str:
        """Take a fact out of search and context; its history stays. As :meth:`edit`."""
        raise NotImplementedError

    async def forget(self, what: Forgettable, target: Any, *, session: Any = None, user: Any = None) -> str:
        """Forget for ever: a message, session or user by its id, a fact or reflection by its text id, a blob's
        version by `<scope key>@<version>`. Returns the request's id.

        With a `user` or `session` only what is theirs alone, NotFound otherwise; without, it is the application
        that asks. A user is forgotten with all agents.
        """
        raise NotImplementedError

    async def history(self, fact_id: str, *, session: Any = None, user: Any = None) -> FactHistory:
        """A fact with its earlier texts, why each came to be, what it rests on and what it cost. NotFound."""
        raise NotImplementedError

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
        """The visible facts, newest first. `active` None: retired ones too; `since` ≤ formed_at < `until`.

        `cursor` is the last page's. What is formed meanwhile never repeats or hides what was there. Invalid.
        """
        raise NotImplementedError

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
        """The visible reflections, newest first; `absorbed` None: whether a blob has taken them in or not."""
        raise NotImplementedError

    async def list_blobs(
        self, *, session: Any = None, user: Any = None, scopes: Sequence[ScopeKind] | None = None
    ) -> list[BlobView]:
        """The blobs of the visible scopes, from broad to narrow."""
        raise NotImplementedError

    async def export_user(self, user: Any) -> dict[str, list[dict[str, Any]]]:
        """Everything held about a user, over all sessions and agents, by collection; plain JSON values."""
        return await self.memory.export_user(user)

    def changes(
        self, *, session: Any = None, user: Any = None, after: str | None = None
    ) -> AsyncGenerator[MemoryChange]:
        """Changes of the visible scopes as they are committed; `after` (a change's id) goes on from there.

        Several changes of a scope may come as one, the newest: a slow reader holds up nothing and misses nothing.
        """
        raise NotImplementedError

    async def get_memory_stats(self, session: Any = None, user: Any = None) -> dict[str, ScopeStats]:
        """The visible scopes in numbers, by label (`agent`, `user`, `shard:<name>`, …)."""
        view = await self._view(session, user)
        return await scope_stats(self.memory.database, self._settings.mongodb.prefix, view)

    async def get_consolidation_status(
        self, session: Any = None, user: Any = None
    ) -> dict[str, ConsolidationStatus]:
        """Buffers and thresholds of the visible scopes, by label."""
        return consolidation_status(await self._view(session, user))

    def _asked(self, session: Any, user: Any) -> Asked:
        return Asked(self._agent_id, typed_or_none(session, "session"), typed_or_none(user, "user"))

    async def _view(self, session: Any, user: Any) -> View:
        return await self.memory.contexts.view(self._asked(session, user))

    async def _with_recalled(self, view: View, xml: str, message: str) -> str:
        """The context with what a search finds; without it where the search fails: the turn goes on."""
        try:
            engine = self.memory.searching.engine
            found = await engine.find(_searched(view), [query_of(message)], RECALLED)
        except Exception as error:  # noqa: BLE001 - an agent's turn never fails for what it might have recalled
            log.warning("nothing recalled", reason=f"{type(error).__name__}: {error}")
            return xml
        lines = [
            FactLine(one.scope, one.content, one.formed_at)
            for one in found
            if f"] {one_line(one.content)} (" not in xml
        ]
        return self.memory.contexts.render(view, recalled=lines) if lines else xml

    async def _ask(self, kind: str, session: Any) -> str:
        typed(session, "session")
        inbox = self.memory.source[self._settings.mongodb.prefix + InboxFormNow.COLLECTION]
        return encode_id(await ask(inbox, {"kind": kind, "session_id": session, "asked_by": self._asked_by}))


def _searched(view: View) -> list[Scope]:
    return [one.scope for one in view.shown if one.snapshot.active_facts]
