"""Scopes kept in the process, as new as what was pushed: those not used for the longest time leave first."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.logs import LibraryLogger
from eden_memory.names import Names
from eden_memory.search.cached_scope import HeldScope
from eden_memory.search.search_documents import KEPT, cached_facts
from eden_memory.task_ending import end

log = LibraryLogger()

Row = dict[str, Any]
Marks = dict[str, Row]
Kept = Callable[[int, int, int], None]
MARKS = ("revision", "reset_revision", "active_facts")
AT_ONCE = 1_000
"""Facts of a batch."""


class HeldScopes:
    """`model` is the embedder's: vectors of another one are not compared.

    While `live`, whoever calls :meth:`changed` tells of every change, and a scope of which nothing was told is as it
    is in the store. Otherwise each use asks for the scopes' revisions first. `kept` is told after each use how many
    bytes and scopes are cached, and how many scopes this use evicted.
    """

    def __init__(
        self, database: AsyncDatabase[Row], names: Names, model: str, most_bytes: int, kept: Kept
    ) -> None:
        majority = ReadConcern("majority")
        self._facts = database.get_collection(names["facts"], read_concern=majority)
        self._snapshots = database.get_collection(names["snapshots"], read_concern=majority)
        self._model, self._most_bytes, self._kept = model, most_bytes, kept
        self._held: OrderedDict[str, HeldScope] = OrderedDict()
        self._following: dict[str | None, asyncio.Task[None]] = {}
        self.is_live = False
        self.queries = 0
        """Asked of MongoDB so far."""
        self.size = 0
        """Bytes that all of them take in memory, about."""

    def __len__(self) -> int:
        return len(self._held)

    def changed(self, scope_key: str | None) -> None:
        """A scope was written (None: any may have been); what is kept of it is read anew at once."""
        held = list(self._held.values()) if scope_key is None else [self._held.get(scope_key)]
        stale = [held_scope for held_scope in held if held_scope is not None]
        for held_scope in stale:
            held_scope.told += 1
        if stale:
            self._follow(scope_key, stale)

    def live(self, live: bool) -> None:
        """Whether every change is told from now on."""
        self.is_live = live

    @asynccontextmanager
    async def current(self, keys: Sequence[str]) -> AsyncGenerator[list[HeldScope]]:
        """The scopes as they are in the store; they stay in memory while they are used."""
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
            self._kept(self.size, len(self), evicted)

    async def catch_up(self, scopes: Sequence[HeldScope]) -> None:
        """Read what was written while the scopes were searched, before what was found is shown."""
        if self.is_live and any(scope.stale for scope in scopes):
            await asyncio.gather(*(self._read(scope) for scope in await self._behind(scopes)))

    async def close(self) -> None:
        """End what runs in the background."""
        running = list(self._following.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _of(self, key: str) -> HeldScope:
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = HeldScope(key)
        self._held.move_to_end(key)
        return held

    def _follow(self, key: str | None, scopes: Sequence[HeldScope]) -> None:
        """Read them anew beside everything else, so that the next search need not wait."""
        running = self._following.get(key)
        if running is None or running.done():
            self._following[key] = asyncio.create_task(self._followed(key, scopes))

    async def _followed(self, key: str | None, scopes: Sequence[HeldScope]) -> None:
        try:
            while behind := [scope for scope in scopes if self._is_behind(scope)]:
                async with self.current([held_scope.key for held_scope in behind]):
                    await asyncio.gather(
                        *(held_scope.words_ready() for held_scope in behind if held_scope.has_words)
                    )
                if not self.is_live:
                    return
        except Exception as error:  # noqa: BLE001 - the next search reads them anew, or says what is wrong
            log.warning("what changed is read at the next search", scope=key, reason=type(error).__name__)
        finally:
            self._following.pop(key, None)

    async def _behind(self, scopes: Sequence[HeldScope]) -> Sequence[HeldScope]:
        """Return the scopes to read; of several, one query tells which have a new revision."""
        asked = scopes if not self.is_live else [scope for scope in scopes if scope.stale]
        if len(asked) < 2:
            return asked
        told = [scope.told for scope in asked]
        marks = await self._marks([scope.key for scope in asked])
        behind: list[HeldScope] = []
        for scope, seen in zip(asked, told, strict=True):
            is_newest = _is_newest(scope, marks)
            scope.seen = seen if is_newest else scope.seen
            if scope.stale or not is_newest:
                behind.append(scope)
        return behind

    async def _read(self, held: HeldScope) -> None:
        """Take in what was written to a scope, in the order of revisions, until nothing changed meanwhile."""
        async with held.lock:
            while held.stale or not self.is_live:
                told, newest = held.told, await self._newest(held)
                if newest != held.revision:
                    self.queries += 1
                    found = self._facts.find_raw_batches(_written_since(held), KEPT, batch_size=AT_ONCE)
                    async for batch in one_ahead(cast("AsyncIterable[bytes]", found.sort("revision"))):
                        await self._take_in(held, batch)
                    held.revision = newest
                held.seen = told
                if not self.is_live:
                    return

    async def _newest(self, held: HeldScope) -> int:
        """Return the revision in the store, -1 for none; what was removed there leaves the scope."""
        marks = (await self._marks([held.key])).get(held.key)
        newest = marks["revision"] if marks is not None else -1
        was_read_in_part = held.revision < 0 and held.facts
        if newest < held.revision or was_read_in_part:
            held.clear()
        elif (
            marks is not None
            and newest > held.revision >= 0
            and marks.get("reset_revision", 0) > held.revision
        ):
            await self._drop_removed(held)
        held.expected = marks.get("active_facts", 0) if marks is not None else 0
        return newest

    async def _marks(self, keys: Sequence[str]) -> Marks:
        self.queries += 1
        found = self._snapshots.find({"_id": {"$in": list(keys)}}, MARKS)
        return {row["_id"]: row async for row in found}

    async def _drop_removed(self, held: HeldScope) -> None:
        """Documents were removed: keep what is there, by an index alone."""
        self.queries += 1
        active: Row = {"scope_key": held.key, "active": True}
        there = {row["_id"] async for row in self._facts.find(active, {"_id": 1})}
        for fact_id in held.facts.keys() - there:
            held.remove(fact_id)

    async def _take_in(self, held: HeldScope, batch: bytes) -> None:
        facts = await asyncio.to_thread(cached_facts, batch, self._model)
        for fact_id, fact in facts.items():
            if fact is None:
                held.remove(fact_id)
        held.put([fact for fact in facts.values() if fact is not None])

    def _is_behind(self, held: HeldScope) -> bool:
        kept = self._held.get(held.key) is held
        return kept and (held.stale or (held.has_words and held.words_waiting))

    def _count(self, held: HeldScope) -> None:
        if self._held.get(held.key) is held:
            size = held.size
            self.size, held.counted = self.size + size - held.counted, size

    def _shrink(self) -> int:
        """Evict the scopes that were not used for the longest time until the rest fits; not those in use."""
        leaving: list[HeldScope] = []
        for held in self._held.values():
            if self.size <= self._most_bytes:
                break
            if not held.users:
                self.size -= held.counted
                leaving.append(held)
        for held in leaving:
            del self._held[held.key]
        return len(leaving)


async def one_ahead(found: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    """Yield batches; each is asked for while the one before it is worked on."""
    batches = aiter(found)
    asked = asyncio.ensure_future(anext(batches, None))
    try:
        while (batch := await asked) is not None:
            asked = asyncio.ensure_future(anext(batches, None))
            yield batch
    finally:
        await end([asked])


def _written_since(held: HeldScope) -> Row:
    """Return the query for what a scope lacks; only active facts if nothing is cached yet."""
    asked: Row = {"scope_key": held.key, "revision": {"$gt": held.revision}}
    return asked | {"active": True} if held.revision < 0 else asked


def _is_newest(held: HeldScope, marks: Marks) -> bool:
    mark = marks.get(held.key)
    return held.revision == (mark["revision"] if mark is not None else -1)
