"""Scopes cached in the process and kept current by a change feed; the least recently used are evicted first."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import ExecutionTimeout
from pymongo.read_concern import ReadConcern

from eden_memory.logs import LibraryLogger, scope_in_logs
from eden_memory.memory.memory_index_store import LARGE_SCOPE
from eden_memory.names import Names
from eden_memory.search.cached_scope import CachedScope
from eden_memory.search.fact_candidates import KEPT, SHOWN, cached_facts
from eden_memory.search.stored_vector_store import StoredVectors
from eden_memory.tasks import one_ahead

log = LibraryLogger()

Row = dict[str, Any]
Marks = dict[str, Row]
OnUse = Callable[[int, int, int], None]
MARKS = ("revision", "reset_revision", "active_facts")
WITHOUT_VECTORS = (*SHOWN, "active")
AT_ONCE = 1_000
"""Facts in a batch."""
MOST_MILLISECONDS = 2_000
"""Most milliseconds of a query of the text index."""


class CachedScopes:
    """Cached scopes; `model` is the embedder's: vectors of another model are not compared.

    While `live`, the change feed calls :meth:`changed` for every change, and a scope without one is current.
    Otherwise each use asks for the scopes' revisions first. After each use `on_use` gets the number of cached
    bytes and scopes, and of scopes that this use evicted.
    """

    def __init__(
        self, database: AsyncDatabase[Row], names: Names, model: str, most_bytes: int, on_use: OnUse
    ) -> None:
        majority = ReadConcern("majority")
        self._facts = database.get_collection(names["facts"], read_concern=majority)
        self._snapshots = database.get_collection(names["snapshots"], read_concern=majority)
        self._model, self._most_bytes, self._on_use = model, most_bytes, on_use
        self._vectors = StoredVectors(database, names, model)
        self._cached: OrderedDict[str, CachedScope] = OrderedDict()
        self._following: dict[str | None, asyncio.Task[None]] = {}
        self._filling: dict[str, asyncio.Task[None]] = {}
        self.is_live = False
        self.queries = 0
        """The number of queries sent to MongoDB."""
        self.size = 0
        """Their approximate size in memory, in bytes."""

    def __len__(self) -> int:
        return len(self._cached)

    def changed(self, scope_key: str | None) -> None:
        """Read a changed scope again in the background; None: any scope may have changed."""
        named = list(self._cached.values()) if scope_key is None else [self._cached.get(scope_key)]
        stale = [scope for scope in named if scope is not None]
        for scope in stale:
            scope.reported += 1
        if stale:
            self._follow(scope_key, stale)

    def live(self, live: bool) -> None:
        """Note whether every change is reported from now on."""
        self.is_live = live

    @asynccontextmanager
    async def current(self, keys: Sequence[str]) -> AsyncGenerator[list[CachedScope]]:
        """Yield the scopes as MongoDB has them; they are not evicted while they are used."""
        scopes = [self._of(key) for key in keys]
        for scope in scopes:
            scope.users += 1
        try:
            await asyncio.gather(*(self._read(scope) for scope in await self._behind(scopes)))
            yield scopes
        finally:
            for scope in scopes:
                scope.users -= 1
                self._count(scope)
            evicted = self._shrink()
            for scope in scopes:
                self._fill(scope)
            self._on_use(self.size, len(self), evicted)

    async def catch_up(self, scopes: Sequence[CachedScope]) -> None:
        """Read what was written while the scopes were searched."""
        if self.is_live and any(scope.stale for scope in scopes):
            await asyncio.gather(*(self._read(scope) for scope in await self._behind(scopes)))

    async def filled(self) -> None:
        """Wait for documents and words that are read in the background."""
        await asyncio.gather(*self._filling.values())

    async def close(self) -> None:
        """End the background tasks."""
        running = [*self._following.values(), *self._filling.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def read_documents(self, scope: CachedScope, fact_ids: Iterable[str]) -> None:
        """Read the documents of found facts while a scope has only vectors."""
        missing = [fact_id for fact_id in fact_ids if fact_id not in scope.facts]
        if scope.left_out is not None and missing:
            await self._add_documents(scope, {"_id": {"$in": missing}}, scope.left_out)

    async def by_text(self, scope: CachedScope, words: Sequence[str], most: int) -> list[tuple[str, float]]:
        """Return facts by MongoDB's text index, best first, while a scope's own words are missing.

        The index is an agent's, so common words may match too many facts of other scopes: that ends with none.
        """
        self.queries += 1
        asked: Row = {"agent_id": scope.agent_id, "$text": {"$search": " ".join(words)}}
        score: Row = {"score": {"$meta": "textScore"}}
        found = self._facts.find({**asked, "scope_key": scope.key, "active": True}, {"_id": 1, **score})
        best = found.sort([("score", {"$meta": "textScore"})]).limit(most)
        try:
            return [(row["_id"], row["score"]) for row in await best.max_time_ms(MOST_MILLISECONDS).to_list()]
        except ExecutionTimeout:
            log.warning("the text index took too long; a search goes on without it")
            return []

    def _fill(self, scope: CachedScope) -> None:
        """Read missing documents and words in the background."""
        cached = self._cached.get(scope.key) is scope
        if cached and scope.left_out is not None and scope.key not in self._filling:
            self._filling[scope.key] = asyncio.create_task(self._filled(scope))

    async def _filled(self, scope: CachedScope) -> None:
        try:
            async with self.current([scope.key]):
                if await self._add_documents(scope, {}, left_out := scope.left_out):
                    await scope.words_ready()
                    scope.complete(left_out)
        except Exception as error:  # noqa: BLE001 - the next search begins again
            log.warning(
                "a scope could not be read whole",
                scope=scope_in_logs(scope.key),
                reason=type(error).__name__,
            )
        finally:
            self._filling.pop(scope.key, None)

    async def _add_documents(self, scope: CachedScope, named: Row, left_out: set[str] | None) -> bool:
        """Read active facts without their vectors; False if the scope has begun anew meanwhile."""
        self.queries += 1
        asked: Row = {"scope_key": scope.key, "active": True, **named}
        found = self._facts.find_raw_batches(asked, WITHOUT_VECTORS, batch_size=AT_ONCE)
        async for batch in one_ahead(cast("AsyncIterable[bytes]", found)):
            facts = await asyncio.to_thread(cached_facts, batch, self._model)
            if not scope.add_documents(filter(None, facts.values()), left_out):
                return False
        return scope.left_out is left_out

    def _of(self, key: str) -> CachedScope:
        scope = self._cached.get(key)
        if scope is None:
            scope = self._cached[key] = CachedScope(key)
        self._cached.move_to_end(key)
        return scope

    def _follow(self, key: str | None, scopes: Sequence[CachedScope]) -> None:
        """Read scopes again in the background, so that the next search need not wait."""
        running = self._following.get(key)
        if running is None or running.done():
            self._following[key] = asyncio.create_task(self._followed(key, scopes))

    async def _followed(self, key: str | None, scopes: Sequence[CachedScope]) -> None:
        try:
            while behind := [scope for scope in scopes if self._is_behind(scope)]:
                async with self.current([scope.key for scope in behind]):
                    await asyncio.gather(*(scope.words_ready() for scope in behind if scope.has_words))
                if not self.is_live:
                    return
        except Exception as error:  # noqa: BLE001 - the next search reads them again, or raises its error
            log.warning(
                "a changed scope could not be read; the next search reads it",
                scope=scope_in_logs(key) if key else "any",
                reason=type(error).__name__,
            )
        finally:
            self._following.pop(key, None)

    async def _behind(self, scopes: Sequence[CachedScope]) -> Sequence[CachedScope]:
        """Return the scopes to read; for several, one query finds those with a new revision."""
        asked = scopes if not self.is_live else [scope for scope in scopes if scope.stale]
        if len(asked) < 2:
            return asked
        reported = [scope.reported for scope in asked]
        marks = await self._marks([scope.key for scope in asked])
        behind: list[CachedScope] = []
        for scope, read in zip(asked, reported, strict=True):
            is_newest = _is_newest(scope, marks)
            scope.read = read if is_newest else scope.read
            if scope.stale or not is_newest:
                behind.append(scope)
        return behind

    async def _read(self, scope: CachedScope) -> None:
        """Apply what was written to a scope, in the order of revisions, until nothing changes meanwhile."""
        async with scope.lock:
            while scope.stale or not self.is_live:
                reported, newest = scope.reported, await self._newest(scope)
                if newest != scope.revision:
                    self.queries += 1
                    found = self._facts.find_raw_batches(_written_since(scope), KEPT, batch_size=AT_ONCE)
                    async for batch in one_ahead(cast("AsyncIterable[bytes]", found.sort("revision"))):
                        await self._take_in(scope, batch)
                    scope.revision = newest
                scope.read = reported
                if not self.is_live:
                    return

    async def _newest(self, scope: CachedScope) -> int:
        """Return the revision in MongoDB, -1 for none; facts that were deleted there leave the scope."""
        marks = (await self._marks([scope.key])).get(scope.key)
        newest = marks["revision"] if marks is not None else -1
        was_read_in_part = scope.revision < 0 and scope.facts
        if newest < scope.revision or was_read_in_part:
            scope.clear()
        elif (
            marks is not None
            and newest > scope.revision >= 0
            and marks.get("reset_revision", 0) > scope.revision
        ):
            await self._drop_removed(scope)
        scope.expected = marks.get("active_facts", 0) if marks is not None else 0
        if marks is not None and scope.revision < 0 and scope.expected >= LARGE_SCOPE:
            await self._begin(scope, marks)
        return newest

    async def _begin(self, scope: CachedScope, marks: Row) -> None:
        """Start a scope that was never read from its stored vectors, if there are any."""
        self.queries += 1
        if (loaded := await self._vectors.of(marks)) is not None:
            scope.begin(loaded)

    async def _marks(self, keys: Sequence[str]) -> Marks:
        self.queries += 1
        found = self._snapshots.find({"_id": {"$in": list(keys)}}, MARKS)
        return {row["_id"]: row async for row in found}

    async def _drop_removed(self, scope: CachedScope) -> None:
        """Remove the facts whose documents were deleted; the query reads an index only."""
        if scope.left_out is not None:
            scope.clear()  # a read in progress may still hold them
            return
        self.queries += 1
        active: Row = {"scope_key": scope.key, "active": True}
        there = {row["_id"] async for row in self._facts.find(active, {"_id": 1})}
        for fact_id in scope.facts.keys() - there:
            scope.remove(fact_id)

    async def _take_in(self, scope: CachedScope, batch: bytes) -> None:
        facts = await asyncio.to_thread(cached_facts, batch, self._model)
        for fact_id, fact in facts.items():
            if fact is None:
                scope.remove(fact_id)
        scope.put([fact for fact in facts.values() if fact is not None])

    def _is_behind(self, scope: CachedScope) -> bool:
        cached = self._cached.get(scope.key) is scope
        return cached and (scope.stale or (scope.has_words and scope.words_waiting))

    def _count(self, scope: CachedScope) -> None:
        if self._cached.get(scope.key) is scope:
            size = scope.size
            self.size, scope.counted = self.size + size - scope.counted, size

    def _shrink(self) -> int:
        """Evict the least recently used scopes until the rest fits, and return how many; those in use stay."""
        leaving: list[CachedScope] = []
        for scope in self._cached.values():
            if self.size <= self._most_bytes:
                break
            if not scope.users:
                self.size -= scope.counted
                leaving.append(scope)
        for scope in leaving:
            del self._cached[scope.key]
        return len(leaving)


def _written_since(scope: CachedScope) -> Row:
    """Return the query for the changes since the scope was read; for an unread scope, its active facts."""
    asked: Row = {"scope_key": scope.key, "revision": {"$gt": scope.revision}}
    return asked | {"active": True} if scope.revision < 0 else asked


def _is_newest(scope: CachedScope, marks: Marks) -> bool:
    mark = marks.get(scope.key)
    return scope.revision == (mark["revision"] if mark is not None else -1)
