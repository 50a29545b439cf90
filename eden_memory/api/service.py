"""`MemoryService`: an agent's memory as its application uses it. MongoDB only: no Kafka, no model but to search."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

import structlog
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions
from pymongo import AsyncMongoClient, ReadPreference
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from eden_memory.api.context_cache import ContextCache, tags_of_scope
from eden_memory.api.facts import FactFinder, FoundFact
from eden_memory.api.own_search import OwnSearch
from eden_memory.domain.consolidating import due
from eden_memory.domain.context.context import FactLine, Shown, context_xml, one_line
from eden_memory.domain.context.recall import asks_for_past, query_of
from eden_memory.domain.context.visible import Asked, View
from eden_memory.domain.errors import EdenError
from eden_memory.domain.limits import label_of
from eden_memory.domain.words import words_of
from eden_memory.handlers import showing_of
from eden_memory.local.servers import endpoints
from eden_memory.mongo.client import connect
from eden_memory.mongo.context.context_source import MongoContextSource
from eden_memory.mongo.context.context_watch import Changed, ContextWatch
from eden_memory.mongo.ids import encode_id
from eden_memory.mongo.memory.streams import MongoStreams
from eden_memory.mongo.source.requests import ask
from eden_memory.mongo.trigger.waits import let_waits_be_cancelled
from eden_memory.settings import Settings
from schemas.documents import InboxFormNow, Reflection
from schemas.scopes import Scope

log = structlog.get_logger()

Client = AsyncMongoClient[dict[str, Any]]
RECALLED = 5
STREAMS_SECONDS = 300.0
"""How long streams are kept: their changes are pushed."""


@dataclass(frozen=True, slots=True)
class ScopeStats:
    """One scope's memory in numbers."""

    scope_key: str
    words: int
    """Of the blob."""
    blob_version: int
    reflections: int
    """All that were formed."""
    buffered: int
    """Those that no blob has absorbed."""
    facts: int
    """Active ones."""
    consolidated_at: datetime | None
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class ConsolidationStatus:
    """How near a scope is to its next consolidation."""

    scope_key: str
    buffered: int
    threshold: int
    due: bool
    consolidated_at: datetime | None


class MemoryService:
    """One for each agent and process; ids are given as the application has them (ObjectId, str, int, UUID).

    Contexts are kept in the process and dropped the moment a change stream says that something they were made
    from has changed; while that stream is away, every read asks MongoDB. Without a `client` it opens one of its
    own, by `settings`; without a `finder` it searches with the embedder that they name.
    """

    def __init__(
        self,
        agent_id: Any = "default",
        *,
        client: Client | None = None,
        settings: Settings | None = None,
        finder: FactFinder | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        let_waits_be_cancelled()
        self._settings = settings or Settings()
        self._agent_id, self._clock = encode_id(agent_id), clock
        self._finder = finder
        self._own_search: OwnSearch | None = None
        self._client = _connected(self._settings) if client is None else client
        self._owns_client = client is None
        self._memory = _database(self._client, self._settings.mongodb.database)
        self._source = _database(self._client, self._settings.source_database)
        prefix = self._settings.mongodb.prefix
        self._streams = MongoStreams(self._memory, prefix, keep_seconds=STREAMS_SECONDS)
        self._contexts = MongoContextSource(self._source, self._memory, self._settings, self._streams)
        self._showing, self._cache = showing_of(self._settings.memory), ContextCache(clock)
        self._watching: asyncio.Task[None] | None = None
        self._live = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._watch()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def ready(self) -> None:
        """Wait until contexts are kept, because whatever changes them is heard of."""
        self._watch()
        await self._live.wait()

    async def close(self) -> None:
        """Stop listening, and close the client if it is ours."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
            self._watching = None
        if self._own_search is not None:
            await self._own_search.close()
        if self._owns_client:
            await self._client.close()

    async def get_memory_context(self, session: Any, user: Any = None, message: str | None = None) -> str:
        """The XML for the agent's prompt, "" where there is nothing; `message` is the user's, for recall."""
        asked = self._asked(session, user)
        kept = self._cache.get(asked, self._render)
        view, xml = (kept.view, kept.xml) if kept is not None else await self._read(asked)
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
    ) -> list[FoundFact]:
        """Facts visible to the user in this session (or outside of any) by meaning, best first; ≤ 3 queries."""
        if not self._settings.memory.search:
            raise EdenError("search is switched off", "EDEN_MEMORY_SEARCH=true switches it on.")
        view = await self._view(self._asked(session, user))
        wanted = [queries] if isinstance(queries, str) else list(queries)
        return await self._search().find(_searched(view), wanted, top_k)

    async def get_memory_stats(self, session: Any = None, user: Any = None) -> dict[str, ScopeStats]:
        """The visible scopes in numbers, by label (`agent`, `user`, `shard:<name>`, …)."""
        view = await self._view(self._asked(session, user))
        reflections = self._memory[self._settings.mongodb.prefix + Reflection.COLLECTION]
        counts = await asyncio.gather(
            *(reflections.count_documents({"scope_key": one.scope.key}) for one in view.shown)
        )
        return {
            label_of(one.scope): _stats(one, count) for one, count in zip(view.shown, counts, strict=True)
        }

    async def get_consolidation_status(
        self, session: Any = None, user: Any = None
    ) -> dict[str, ConsolidationStatus]:
        """Buffers and thresholds of the visible scopes, by label."""
        view = await self._view(self._asked(session, user))
        return {label_of(one.scope): _status(one) for one in view.shown}

    def _asked(self, session: Any, user: Any) -> Asked:
        return Asked(self._agent_id, _typed(session), _typed(user))

    def _render(self, view: View, now: datetime) -> str:
        return context_xml(view.shown, now, self._showing)

    async def _read(self, asked: Asked) -> tuple[View, str]:
        self._watch()
        reading = self._cache.reading(asked)
        try:
            view = await self._view(asked)
        except BaseException:
            self._cache.failed(reading)
            raise
        return view, self._cache.put(reading, view, self._render)

    async def _view(self, asked: Asked) -> View:
        return (await self._contexts.look_up([asked]))[asked]

    async def _with_recalled(self, view: View, xml: str, message: str) -> str:
        """The context with what a search finds; without it where the search fails: the turn goes on."""
        try:
            found = await self._search().find(_searched(view), [query_of(message)], RECALLED)
        except Exception as error:  # noqa: BLE001 - an agent's turn never fails for what it might have recalled
            log.warning("nothing recalled", reason=f"{type(error).__name__}: {error}")
            return xml
        lines = [
            FactLine(one.scope, one.content, one.formed_at)
            for one in found
            if f"] {one_line(one.content)} (" not in xml
        ]
        return context_xml(view.shown, self._clock(), self._showing, lines) if lines else xml

    def _search(self) -> FactFinder:
        if self._finder is None:
            self._own_search = OwnSearch(self._settings, self._memory)
            self._finder = self._own_search.finder
        return self._finder

    async def _ask(self, kind: str, session: Any) -> str:
        inbox = self._source[self._settings.mongodb.prefix + InboxFormNow.COLLECTION]
        encode_id(session)
        return encode_id(await ask(inbox, {"kind": kind, "session_id": session, "asked_by": "MemoryService"}))

    def _watch(self) -> None:
        """Listen, from the first use on; again should listening have ended by itself."""
        if self._watching is None or self._watching.done():
            watch = ContextWatch(self._client, self._settings, self._changed, self._heard)
            self._watching = asyncio.create_task(watch.run(), name="contexts' change stream")

    def _heard(self, live: bool) -> None:
        if not live:
            self._cache.clear()
        self._cache.live = live
        (self._live.set if live else self._live.clear)()

    def _changed(self, changed: Changed) -> None:
        if changed.what == "everything":
            self._streams.forget()
            self._cache.clear()
        elif changed.what == "scope":
            for tag in tags_of_scope(changed.id):
                self._cache.changed(tag)
        else:
            self._cache.changed(f"{changed.what}:{changed.id}")


def _typed(value: Any) -> str | None:
    return None if value is None else encode_id(value)


def _searched(view: View) -> list[Scope]:
    return [one.scope for one in view.shown if one.snapshot.active_facts]


def _stats(one: Shown, reflections: int) -> ScopeStats:
    snapshot = one.snapshot
    return ScopeStats(
        scope_key=one.scope.key,
        words=words_of(snapshot.blob or ""),
        blob_version=snapshot.blob_version,
        reflections=reflections,
        buffered=len(snapshot.buffer),
        facts=snapshot.active_facts,
        consolidated_at=snapshot.consolidated_at,
        changed_at=snapshot.changed_at,
    )


def _status(one: Shown) -> ConsolidationStatus:
    snapshot = one.snapshot
    return ConsolidationStatus(
        scope_key=one.scope.key,
        buffered=len(snapshot.buffer),
        threshold=one.limits.threshold,
        due=due(snapshot, one.limits) is not None,
        consolidated_at=snapshot.consolidated_at,
    )


def _connected(settings: Settings) -> Client:
    uri = settings.mongodb.uri
    return connect(settings.mongodb, uri.get_secret_value() if uri else endpoints(settings).mongodb)


def _database(client: Client, name: str) -> AsyncDatabase[dict[str, Any]]:
    """As we need it, however the application has set up its client."""
    options = CodecOptions[dict[str, Any]](tz_aware=True, uuid_representation=UuidRepresentation.STANDARD)
    return client.get_database(
        name,
        codec_options=options,
        read_preference=ReadPreference.PRIMARY,
        read_concern=ReadConcern("majority"),
        write_concern=WriteConcern("majority", j=True),
    )
