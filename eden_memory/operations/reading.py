"""The calls of MemoryService that read: contexts, searches, lists by page, histories, numbers, changes."""

from asyncio import gather
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Unpack, cast

from eden_memory.access.visible import Asker, VisibleMemory
from eden_memory.app.memory import ProcessMemory
from eden_memory.app.readers import Readers, consolidation_status, scope_stats
from eden_memory.context.cached_contexts import ShownContext
from eden_memory.context.context_xml import FactLine, one_line, query_of
from eden_memory.context.recent_message_store import NO_RECENT, Recent
from eden_memory.directory.id_reader_store import default_agent
from eden_memory.errors import Invalid, NotShown, describe
from eden_memory.limits import RECALLED_FACTS
from eden_memory.logs import LibraryLogger
from eden_memory.memory.browsing_store import Browsing, Filters, demand_kinds
from eden_memory.memory.memory_views import (
    BlobView,
    ConsolidationStatus,
    Explained,
    FactHistory,
    FactView,
    MemoryChange,
    Page,
    ReflectionView,
    ScopeStats,
    fact_view,
    reflection_view,
)
from eden_memory.models.question import Asking
from eden_memory.mongo.ids import typed, typed_or_none
from eden_memory.observability.why_store import MOST_EXPLAINED
from eden_memory.operations import parameters as p
from eden_memory.operations.memory_changes import changes
from eden_memory.schemas.scopes import Scope, ScopeKind
from eden_memory.search.fact_candidates import When
from eden_memory.search.search_requests import (
    FACTS,
    FoundFact,
    SearchOptions,
    SearchReport,
    SearchRequest,
    find_unformed,
)
from eden_memory.tasks import in_utc
from eden_memory.telemetry.spans import OpenSpan

log = LibraryLogger()
STAGE = "search"
"""Searches' model calls are counted for this stage."""


class ReadCalls:
    """Reads an agent's memory: what a user may see in a session, or outside of any; without a user, what is nobody's.

    Ids are given as the application has them, the agent None is the default one; NotAnId for anything else.
    """

    def __init__(
        self, memory: ProcessMemory, agent_id: Any, asked_by: str, changes_shared: bool | None = None
    ) -> None:
        self.memory, self.changes_shared = memory, changes_shared
        agent = default_agent(memory.settings) if agent_id is None else agent_id
        self._agent_id, self._asked_by = typed(agent, "agent"), asked_by

    @property
    def agent_id(self) -> str:
        """The agent's typed id."""
        return self._agent_id

    def _asked(self, session: Any, user: Any) -> Asker:
        return Asker(self._agent_id, typed_or_none(session, "session"), typed_or_none(user, "user"))

    async def _seen(self, session: Any, user: Any) -> tuple[Asker, VisibleMemory, Readers]:
        """Return the asker, the memory it may see, and the readers: one namespace for the whole call."""
        asked, readers = self._asked(session, user), await self.memory.current()
        return asked, await readers.contexts.view(asked), readers

    async def get_memory_context(
        self,
        session: p.Session,
        user: p.User = None,
        message: p.Message = None,
        *,
        scopes: p.Scopes = None,
        force_refresh: p.ForceRefresh = False,
    ) -> str:
        """Return the XML for the agent's prompt, "" if there is nothing; `message` is the user's, for recall.

        `scopes`: only memory in scopes of these kinds. `force_refresh`: read memory anew, whatever is cached.

        The process caches memory, with messages that are not formed yet, until a change stream reports a change of a
        source. Who is in the session is read by each call, if the authors of messages define that.
        """
        demand_kinds(scopes)
        with OpenSpan("read context") as span:
            xml = await self._context(self._asked(session, user), message, scopes, anew=force_refresh)
            span.attributes["eden.context.characters"] = len(xml)
        return xml

    async def _context(
        self, asked: Asker, message: str | None, scopes: Sequence[ScopeKind] | None, *, anew: bool
    ) -> str:
        readers = await self.memory.current()
        shown = await readers.contexts.get(asked, scopes, anew=anew)
        if message is None:
            return shown.xml
        return await self._with_recalled(readers, shown, message, self._asking(asked.user_id))

    async def on_session_start(self, session: p.Session, user: p.User = None) -> str:
        """Build the context before the first turn, and return it."""
        return await self.get_memory_context(session, user)

    async def search_facts(
        self,
        queries: Sequence[str] | str | None = None,
        *,
        query: Sequence[str] | str | None = None,
        **options: Unpack[SearchOptions],
    ) -> list[FoundFact]:
        """Return facts visible to the user in this session (or outside of any), best first; at most three queries.

        `kinds` ("facts", "reflections") says what is searched. Reflections hold what users prefer and want done, and
        what the agent recommended; those that a blob has absorbed are found too.

        `query` is another name of `queries`. The options are those of
        eden_memory.search.search_requests.SearchOptions. Raises NotShown if none of `kinds` is shown, and Invalid
        if a value is out of range.
        """
        if (queries is None) == (query is None):
            raise Invalid("give `queries` or `query`, and not both")
        asked = query if queries is None else queries
        return list((await self.explain_search(asked or (), **options)).facts)

    async def offers_search_tool(self) -> bool:
        """Tell whether the agent's model is to be offered the tool that searches memory; its stream may say no.

        Searches of your own code do not depend on it.
        """
        stream = (await (await self.memory.current()).contexts.streams(self._agent_id)).get("agent")
        return stream is None or stream.search_tool is not False

    async def explain_search(
        self,
        queries: p.Queries,
        *,
        session: p.Session = None,
        user: p.User = None,
        top_k: p.TopK = 10,
        search_type: p.SearchType = "hybrid",
        kinds: p.Kinds = FACTS,
        scopes: p.SearchedScopes = None,
        as_of: p.AsOf = None,
        asked_at: p.AskedAt = None,
        include_retired: p.IncludeRetired = False,
        occurred_after: p.OccurredAfter = None,
        occurred_before: p.OccurredBefore = None,
        sort: p.FoundOrder = "score",
        recency_weight: p.RecencyWeight = None,
        score_threshold: p.Threshold = None,
        related: Annotated[bool, p.PYTHON_ALONE] = False,
        as_context: Annotated[bool, p.PYTHON_ALONE] = False,
        debug: p.Debug = True,
    ) -> SearchReport:
        """Search as :meth:`search_facts` does, and report (`debug`) time, candidates and scores of every stage.

        `text_only` of the report gives the reason if facts were found by words alone; `unformed` are messages of the
        user's other sessions that no memory is formed from yet. `as_context`: who sees what, and these messages, are
        taken from the context that the process keeps, which shows the newest of them alone.
        """
        when = When(
            _in_utc(as_of),
            include_retired,
            occurred_after=_in_utc(occurred_after),
            occurred_before=_in_utc(occurred_before),
        )
        request = SearchRequest(
            _texts(queries),
            when=when,
            asked_at=asked_at or self.memory.clock(),
            asking=self._asking(typed_or_none(user, "user")),
            top_k=top_k,
            search_type=search_type,
            kinds=kinds,
            sort=sort,
            recency_weight=recency_weight,
            score_threshold=score_threshold,
            related=related,
        )
        demand_kinds(scopes)
        readers, asked = await self.memory.current(), self._asked(session, user)
        kept = await readers.contexts.get(asked, scopes) if as_context else None
        view = kept.view if kept else (await readers.contexts.view(asked)).narrowed(scopes)
        shown = [kind for kind in request.kinds if kind in view.shows]
        if not shown:
            hint = f"EDEN_MEMORY_{request.kinds[0].upper()}=on shows them; so does the agent's document."
            raise NotShown(f"{' and '.join(request.kinds)} are not shown", hint)
        request = replace(request, kinds=shown, private=view.private)
        reads_recent = kept is None and as_of is None
        async with readers.searching.engine() as engine:
            report, read = await gather(
                engine.find(_searched(view, request), request),
                readers.recent.shown(asked, view, whole=True) if reads_recent else _none(),
            )
        recent = kept.recent if kept and as_of is None else read.messages
        found = replace(report, unformed=await find_unformed(request.texts, recent, request.top_k))
        if debug:
            return found
        return replace(found, stages=None, facts=tuple(replace(fact, scores={}) for fact in found.facts))

    async def why(
        self, text: p.Words, *, session: p.Session = None, user: p.User = None
    ) -> tuple[Explained, ...]:
        """Explain why something is remembered as it is, or is not: facts, reflections and the user's own messages.

        `text` is compared by words; no model is called. Only what the user may see in this session is explained, and
        messages only where the user is alone. Raises Invalid for a text without words.
        """
        if not text.split():
            raise Invalid("there is nothing to explain", "Give a few words of the memory or message.")
        asked, view, readers = await self._seen(session, user)
        request = SearchRequest(
            (text,), MOST_EXPLAINED, "text", When(include_retired=True), private=view.private
        )
        async with readers.searching.engine() as engine:
            report = await engine.find(_searched(view, request), request)
        return await readers.explanations.of(asked, view, text, report)

    def _asking(self, user_id: str | None) -> Asking:
        """Return who pays for the embedding of a query."""
        return Asking(STAGE, "facts", "", self._agent_id, "", user_id=user_id)

    async def _with_recalled(
        self, readers: Readers, shown: ShownContext, message: str, asking: Asking
    ) -> str:
        """Return the context with the facts that a search finds, or without them if it fails or is switched off."""
        memory, view = self.memory.settings.memory, shown.view
        if (by := memory.recalls_by) is None or "facts" not in view.shows:
            return shown.xml
        request = SearchRequest(
            (query_of(message, self.memory.settings),),
            RECALLED_FACTS,
            by,
            asked_at=self.memory.clock(),
            related=True,
            asking=asking,
            private=view.private,
        )
        try:
            async with readers.searching.engine() as engine:
                report = await engine.find(_searched(view, request), request)
        except Exception as error:  # noqa: BLE001 - an agent's turn never fails for what it might have recalled
            log.warning("recall failed; the context is given without it", reason=describe(error))
            return shown.xml
        lines = [
            FactLine(fact.scope, fact.content, fact.valid_from)
            for fact in report.facts
            if f"] {one_line(fact.content)} (" not in shown.xml
        ]
        return readers.contexts.render(view, recalled=lines, recent=shown.recent) if lines else shown.xml

    def _browsing(self, readers: Readers) -> Browsing:
        return Browsing(self.memory.database, readers.settings.names)

    async def history(
        self, fact_id: p.FactId, *, session: p.Session = None, user: p.User = None
    ) -> FactHistory:
        """Return a fact with its earlier texts, and the reason, sources and cost of each; raises NotFound."""
        asked, view, readers = await self._seen(session, user)
        return await self._browsing(readers).history(asked, view, fact_id)

    async def fact(self, fact_id: p.FactId, *, session: p.Session = None, user: p.User = None) -> FactView:
        """Return a fact in its newest version; raises NotFound."""
        asked, view, readers = await self._seen(session, user)
        return fact_view(*await self._browsing(readers).fact(asked, view, fact_id), asked)

    async def reflection(
        self, reflection_id: p.ReflectionId, *, session: p.Session = None, user: p.User = None
    ) -> ReflectionView:
        """Return a reflection with its earlier texts and the commands behind them; raises NotFound."""
        asked, view, readers = await self._seen(session, user)
        return reflection_view(*await self._browsing(readers).reflection(asked, view, reflection_id), asked)

    async def list_facts(
        self,
        *,
        session: p.Session = None,
        user: p.User = None,
        scopes: p.Scopes = None,
        active: p.Active = True,
        since: p.Since = None,
        until: p.Until = None,
        occurred_after: p.OccurredAfter = None,
        occurred_before: p.OccurredBefore = None,
        sort: p.ListOrder = "formed_at",
        limit: p.Limit = 50,
        cursor: p.Cursor = None,
    ) -> Page[FactView]:
        """Return the visible facts, newest first; `active` None: with retired facts, False: only those.

        `since` ≤ valid_from < `until`; `occurred_after` ≤ occurred_at < `occurred_before`, apart from when it was
        said. The order is that of formed_at, or (`sort`) of occurred_at: then only facts that say when something
        happened are listed. `limit` 1 to 200; `cursor` is the last page's: facts that form between two pages neither
        repeat nor hide others. Raises Invalid.
        """
        filters = Filters(
            scopes,
            active,
            since,
            until,
            limit,
            cursor,
            occurred_after=occurred_after,
            occurred_before=occurred_before,
        )
        asked, view, readers = await self._seen(session, user)
        return await self._browsing(readers).facts(asked, view, filters, sort=sort)

    async def list_reflections(
        self,
        *,
        session: p.Session = None,
        user: p.User = None,
        scopes: p.Scopes = None,
        absorbed: p.Absorbed = None,
        since: p.Since = None,
        until: p.Until = None,
        limit: p.Limit = 50,
        cursor: p.Cursor = None,
    ) -> Page[ReflectionView]:
        """Return the visible reflections, newest first.

        `absorbed`: by a blob (True); waiting for one (False: retired ones are left out); None: all.

        `since` ≤ said_at < `until`; otherwise as :meth:`list_facts`.
        """
        filters = Filters(scopes, absorbed, since, until, limit, cursor)
        asked, view, readers = await self._seen(session, user)
        return await self._browsing(readers).reflections(asked, view, filters)

    async def list_blobs(
        self, *, session: p.Session = None, user: p.User = None, scopes: p.Scopes = None
    ) -> list[BlobView]:
        """Return the blobs of the visible scopes with their earlier versions, from broad to narrow."""
        filters = Filters(scopes)
        asked, view, readers = await self._seen(session, user)
        return await self._browsing(readers).blobs(asked, view, filters)

    async def get_memory_stats(self, session: p.Session = None, user: p.User = None) -> dict[str, ScopeStats]:
        """Return figures of the visible scopes, by label (`agent`, `user`, `shard:<name>`, …)."""
        _, view, readers = await self._seen(session, user)
        return await scope_stats(self.memory.database, readers.settings.names, view)

    async def get_consolidation_status(
        self, session: p.Session = None, user: p.User = None
    ) -> dict[str, ConsolidationStatus]:
        """Return buffers and thresholds of the visible scopes, by label."""
        _, view, _ = await self._seen(session, user)
        return consolidation_status(view)

    async def export_user(self, user: Any) -> dict[str, list[dict[str, Any]]]:
        """Return everything stored about a user, over all sessions and agents, by collection; plain JSON values."""
        return await self.memory.export_user(user)

    def changes(
        self, *, session: p.Session = None, user: p.User = None, after: str | None = None
    ) -> AsyncGenerator[MemoryChange]:
        """Yield changes of the visible scopes as they are committed, or from `after` (a change's id) on.

        Several changes of a scope may come as one, the newest: a slow reader delays nothing and misses nothing.
        """
        return changes(self.memory, self._asked(session, user), after)


async def _none() -> Recent:
    return NO_RECENT


def _texts(queries: Any) -> tuple[str, ...]:
    given: Any = (queries,) if isinstance(queries, str) else queries
    if not isinstance(given, Sequence) or not all(
        isinstance(query, str) for query in cast("Sequence[Any]", given)
    ):
        raise Invalid("a query must be a text", "Give one text, or up to three.")
    return tuple(cast("Sequence[str]", given))


def _searched(view: VisibleMemory, request: SearchRequest) -> list[Scope]:
    """Return the scopes with active facts; for the past and for reflections all, since those are not counted."""
    every = not request.when.is_now or "reflections" in request.kinds
    return [shown.scope for shown in view.shown if shown.snapshot.active_facts or every]


def _in_utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else in_utc(moment)
