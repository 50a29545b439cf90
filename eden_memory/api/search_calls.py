"""Searching facts, and contexts with what a message asks of the past."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

from eden_memory.access.visible import VisibleMemory
from eden_memory.api.list_calls import AgentCalls
from eden_memory.app.readers import Readers
from eden_memory.context.context_xml import FactLine, one_line
from eden_memory.context.recall import asks_for_past, query_of
from eden_memory.error_text import describe
from eden_memory.errors import EdenError, Invalid
from eden_memory.logs import LibraryLogger
from eden_memory.models.question import Asking
from eden_memory.mongo.application_ids import typed_or_none
from eden_memory.schemas.scopes import Scope
from eden_memory.search.fact_candidates import When
from eden_memory.search.search_requests import FoundFact, Kind, SearchReport, SearchRequest

log = LibraryLogger()
STAGE = "search"
"""The purpose under which the calls of searches are counted."""


class SearchCalls(AgentCalls):
    """Nothing but the visible scopes is ever searched."""

    async def get_memory_context(self, session: Any, user: Any = None, message: str | None = None) -> str:
        """The XML for the agent's prompt, "" where there is nothing; `message` is the user's, for recall.

        Kept in the process until something that it was made from changes: a repeated call costs microseconds.
        Where the authors of messages say who is in a session, each call asks for them.
        """
        readers = await self.memory.current()
        view, xml = await readers.contexts.get(self._asked(session, user))
        if message is None or not self.memory.settings.memory.search or not asks_for_past(message, xml):
            return xml
        return await self._with_recalled(readers, view, xml, message, self._asking(user))

    async def on_session_start(self, session: Any, user: Any = None) -> str:
        """Have the context at hand before the first turn; returns it."""
        return await self.get_memory_context(session, user)

    async def search_facts(
        self,
        queries: Sequence[str] | str,
        *,
        session: Any = None,
        user: Any = None,
        top_k: int = 10,
        search_type: Kind = "hybrid",
        as_of: datetime | None = None,
        include_retired: bool = False,
        recency_weight: float | None = None,
        score_threshold: float | None = None,
        related: float = 0.0,
        asked_at: datetime | None = None,
    ) -> list[FoundFact]:
        """Facts visible to the user in this session (or outside of any), best first; at most three queries.

        `as_of`: what was known then. `recency_weight`: 0 to 1, how much freshness counts. `score_threshold`: facts
        with less are left out. `related`: those whose meaning is not so far from unrelated (0) to the same text (1)
        are, too. `asked_at`: what "last week" is counted from; unset: now. EdenError if search is
        switched off, or a value is out of its range.
        """
        report = await self.explain_search(
            queries,
            session=session,
            user=user,
            top_k=top_k,
            search_type=search_type,
            as_of=as_of,
            include_retired=include_retired,
            recency_weight=recency_weight,
            score_threshold=score_threshold,
            related=related,
            asked_at=asked_at,
        )
        return list(report.facts)

    async def explain_search(
        self,
        queries: Sequence[str] | str,
        *,
        session: Any = None,
        user: Any = None,
        top_k: int = 10,
        search_type: Kind = "hybrid",
        as_of: datetime | None = None,
        include_retired: bool = False,
        recency_weight: float | None = None,
        score_threshold: float | None = None,
        related: float = 0.0,
        asked_at: datetime | None = None,
    ) -> SearchReport:
        """Search as :meth:`search_facts` does, and report time, candidates and scores of every stage.

        `text_only` of the report says why facts were found by words alone, where they were.
        """
        if not self.memory.settings.memory.search:
            raise EdenError("search is switched off", "EDEN_MEMORY_SEARCH=true switches it on.")
        when = When(as_of if as_of is None or as_of.tzinfo else as_of.replace(tzinfo=UTC), include_retired)
        request = SearchRequest(
            queries=_texts(queries),
            top_k=top_k,
            search_type=search_type,
            when=when,
            asked_at=asked_at or self.memory.clock(),
            recency_weight=recency_weight,
            score_threshold=score_threshold,
            related=related,
            asking=self._asking(user),
        )
        _, view, readers = await self._seen(session, user)
        async with readers.searching.engine() as engine:
            return await engine.find(_searched(view, when), replace(request, private=view.private))

    def _asking(self, user: Any) -> Asking:
        """Whom the embedding of a query is counted for."""
        return Asking(STAGE, "facts", "", self._agent_id, "", user_id=typed_or_none(user, "user"))

    async def _with_recalled(
        self, readers: Readers, view: VisibleMemory, xml: str, message: str, asking: Asking
    ) -> str:
        """The context with what a search finds; without it where the search fails: the turn goes on."""
        memory = self.memory.settings.memory
        request = SearchRequest(
            (query_of(message),),
            memory.recalled_facts,
            asked_at=self.memory.clock(),
            related=memory.recall_related,
            asking=asking,
            private=view.private,
        )
        try:
            async with readers.searching.engine() as engine:
                report = await engine.find(_searched(view, request.when), request)
        except Exception as error:  # noqa: BLE001 - an agent's turn never fails for what it might have recalled
            log.warning("nothing recalled", reason=describe(error))
            return xml
        lines = [
            FactLine(fact.scope, fact.content, fact.valid_from)
            for fact in report.facts
            if f"] {one_line(fact.content)} (" not in xml
        ]
        return readers.contexts.render(view, recalled=lines) if lines else xml


def _texts(queries: Any) -> tuple[str, ...]:
    given: Any = (queries,) if isinstance(queries, str) else queries
    if not isinstance(given, Sequence) or not all(
        isinstance(query, str) for query in cast("Sequence[Any]", given)
    ):
        raise Invalid("a query is no text", "Give a text, or up to three.")
    return tuple(cast("Sequence[str]", given))


def _searched(view: VisibleMemory, when: When) -> list[Scope]:
    """Scopes that hold facts; of the past, all: those retired since are no longer counted."""
    return [shown.scope for shown in view.shown if shown.snapshot.active_facts or not when.is_now]
