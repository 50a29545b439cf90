"""Shared by the services of all agents in one process: one client, one change stream, one search."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from pymongo import AsyncMongoClient, ReadPreference
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from eden_memory.app.readers import LiveReaders, Readers
from eden_memory.app.searching import Engine, Searching
from eden_memory.context.cached_contexts import Contexts
from eden_memory.context.recent_message_store import RecentMessages
from eden_memory.directory.id_reader_store import IdReader
from eden_memory.forgetting.mark_store import MongoForgetting
from eden_memory.local.servers import mongodb_endpoint
from eden_memory.memory.browsing_store import Browsing
from eden_memory.memory.memory_views import FactOrigin
from eden_memory.memory.user_memory_store import Export
from eden_memory.mongo.client import connect
from eden_memory.mongo.lenient_decoding import PLAIN
from eden_memory.names import Placement
from eden_memory.observability.why_store import Explanations
from eden_memory.replay.namespaces.namespace_store import MongoLive
from eden_memory.search.search_requests import FoundFact
from eden_memory.settings import Settings
from eden_memory.tasks import Unawaited

Client = AsyncMongoClient[dict[str, Any]]
Database = AsyncDatabase[dict[str, Any]]


def utc_now() -> datetime:
    """The time."""
    return datetime.now(UTC)


class ProcessMemory:
    """One for each process and event loop (eden_memory.api.service.Memory, which knows the agents' services).

    Without a `client` it opens one of its own, by `settings`; without an `engine` it searches with the embedder
    that the settings name. Nothing is connected, read or loaded before the first call. It reads the namespace that is
    live, and follows when another becomes live; settings that are `placed` elsewhere keep it there.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        client: Client | None = None,
        engine: Engine | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        given, self.clock = settings or Settings(), clock
        self.client = _connected(given) if client is None else client
        self._owns_client, self._engine = client is None, engine
        self.database = _database(self.client, given.mongodb.database)
        """Of memory."""
        self.source = _database(self.client, given.source_database)
        """Of the application, with `memory_inbox`."""
        self.ids = IdReader(self.source, given)
        """Reads the ids that doors are given as text."""
        self.unawaited = Unawaited()
        """The tasks that follow changes beside the calls."""
        live = MongoLive(self.database, given.mongodb.prefix)
        fixed = given.placement != Placement()
        self._following = LiveReaders(given, self._readers, live.read, self.unawaited, fixed=fixed)

    @property
    def settings(self) -> Settings:
        """Of the namespace that is read now."""
        return self._following.now.settings

    @property
    def contexts(self) -> Contexts:
        """Of the namespace that is read now."""
        return self._following.now.contexts

    @property
    def searching(self) -> Searching:
        """In the namespace that is read now."""
        return self._following.now.searching

    async def current(self) -> Readers:
        """Return the readers of the live namespace, looked up with the first call; a call uses one throughout."""
        return await self._following.current()

    def watch(self) -> None:
        """Follow changes from now on."""
        self._following.watch()

    def _readers(self, settings: Settings, look_again: Callable[[], None]) -> Readers:
        forgotten = MongoForgetting(self.database, settings.names)
        recent = RecentMessages(self.source, self.database, settings, forgotten, self.clock)
        contexts = Contexts(
            self.client,
            self.source,
            self.database,
            settings,
            self.clock,
            recent,
            look_again,
            self.unawaited,
        )
        return Readers(
            settings,
            contexts,
            Searching(settings, self.database, self._engine, contexts.follow),
            recent,
            Explanations(self.source, self.database, settings, forgotten),
        )

    async def __aenter__(self) -> Self:
        self.watch()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def ready(self) -> None:
        """Wait until contexts are cached: from then on, every change is reported."""
        await (await self.current()).contexts.ready()

    async def close(self) -> None:
        """Stop following changes, release models, and close the client if it is ours."""
        await self._following.close()
        if self._owns_client:
            await self.client.close()

    async def origins(self, found: Sequence[FoundFact]) -> dict[str, FactOrigin]:
        """Return, by fact id, the newest message that each fact of a search rests on, if it rests on any."""
        browsing = Browsing(self.database, (await self.current()).settings.names)
        return await browsing.origins([fact.fact_id for fact in found])

    async def export_user(self, user: Any) -> dict[str, list[dict[str, Any]]]:
        """Return all that is stored about a user, over all sessions and agents, by collection; raises NotAnId."""
        gathered: dict[str, list[dict[str, Any]]] = {}
        async for name, document in self.export_items(user):
            gathered.setdefault(name, []).append(document)
        return gathered

    async def export_items(self, user: Any) -> AsyncGenerator[tuple[str, dict[str, Any]]]:
        """As :meth:`export_user`, one (collection, document) after the other: nothing is gathered in memory."""
        names = (await self.current()).settings.names
        async with aclosing(Export(self.database, self.source, names).of(user)) as items:
            async for item in items:
                yield item


def _connected(settings: Settings) -> Client:
    return connect(mongodb_endpoint(settings))


def _database(client: Client, name: str) -> Database:
    """Return the collection with the options that we need, whatever those of the application's client are."""
    return client.get_database(
        name,
        codec_options=PLAIN.with_options(tz_aware=True, tzinfo=UTC),
        read_preference=ReadPreference.PRIMARY,
        read_concern=ReadConcern("majority"),
        write_concern=WriteConcern("majority", j=True),
    )
