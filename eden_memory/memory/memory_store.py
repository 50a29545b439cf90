"""The only writer of memory: what a batch says of a scope becomes documents in one transaction."""

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError, DuplicateKeyError, PyMongoError

from eden_memory.memory.memory_batch import ScopeBatch
from eden_memory.memory.memory_loading_store import MemoryCollections, MemoryLoading, Stored
from eden_memory.memory.memory_writing_store import Changed, MemoryWriting
from eden_memory.memory.projection import project
from eden_memory.memory.stored_memory import AppliedScope, Projected, StoredScope
from eden_memory.mongo.documents import Row
from eden_memory.mongo.orphaned_transactions import Orphans
from eden_memory.names import Names

AT_ONCE = 8
"""Transactions of one process at the same time."""
ATTEMPTS = 8
"""How often a scope is read anew because somebody else wrote it first."""
LOCKED_SECONDS = 1.0
LONGEST_LOCK_SECONDS = 90.0
"""A transaction left open locks what it wrote: for 60 s, unless the server is set otherwise."""
TOGETHER = 300
"""Records of one transaction, roughly: a commit costs several times what one of them does."""
DUPLICATE_KEY = 11_000
AGAIN = ("TransientTransactionError", "UnknownTransactionCommitResult")


class MongoMemoryStore:
    """Reads and writes the collections of one namespace."""

    def __init__(self, database: AsyncDatabase[Row], names: Names, at_once: int = AT_ONCE) -> None:
        collections = MemoryCollections(database, names)
        self._loading = MemoryLoading(collections)
        self._writing = MemoryWriting(database.client, collections)
        self._slots = asyncio.Semaphore(at_once)
        self._orphans = Orphans(database.client)

    async def load(self, batches: Sequence[ScopeBatch]) -> Stored:
        """What each batch touches; nothing if a document cannot be read: `apply` finds out whose it is."""
        try:
            return await self._loading.load(batches)
        except ValidationError:
            return {}

    async def apply(
        self, batches: Sequence[ScopeBatch], stored: Mapping[str, StoredScope] | None = None
    ) -> Mapping[str, AppliedScope | Exception]:
        """Each scope's batch whole or not at all, many in one transaction; an error is of one scope alone."""
        stored = await self.load(batches) if stored is None else stored
        groups = [self._group(group, stored) for group in _groups(batches)]
        return {key: one for results in await asyncio.gather(*groups) for key, one in results.items()}

    async def _group(
        self, batches: Sequence[ScopeBatch], stored: Mapping[str, StoredScope]
    ) -> Mapping[str, AppliedScope | Exception]:
        """Several in one transaction, and each in one of its own if that fails."""
        if stored and len(batches) > 1:
            try:
                return await self._together(batches, stored)
            except Exception:  # noqa: BLE001 - whose it is shows when each is read and written alone
                stored = {}
        results = await asyncio.gather(*(self._scope(one, stored.get(one.key)) for one in batches))
        return {one.key: result for one, result in zip(batches, results, strict=True)}

    async def _together(
        self, batches: Sequence[ScopeBatch], stored: Mapping[str, StoredScope]
    ) -> Mapping[str, AppliedScope]:
        projected = {one.key: project(one, stored[one.key]) for one in batches}
        if changes := [one.change for one in projected.values() if one.change is not None]:
            async with self._slots:
                await self._writing.write(changes)
        return {key: _applied(one) for key, one in projected.items()}

    async def _scope(self, batch: ScopeBatch, stored: StoredScope | None) -> AppliedScope | Exception:
        try:
            return await self._apply(batch, stored)
        except Exception as error:  # noqa: BLE001 - handed to the caller as this scope's result
            return error

    async def _apply(self, batch: ScopeBatch, stored: StoredScope | None) -> AppliedScope:
        """Apply, reading anew as often as somebody else was first: what was committed then is found."""
        patience = Patience()
        while True:
            if stored is None:
                stored = (await self._loading.load([batch]))[batch.key]
            projected = project(batch, stored)
            if projected.change is None:
                return _applied(projected)
            try:
                async with self._slots:
                    await self._writing.write([projected.change])
                return _applied(projected)
            except (Changed, PyMongoError) as error:
                if not patience.allows(error):
                    raise
            stored = None
            if patience.locked:
                await self._orphans.end()
            await asyncio.sleep(patience.pause())


def _groups(batches: Sequence[ScopeBatch]) -> list[list[ScopeBatch]]:
    """Whole scopes, about `TOGETHER` records of them in each group."""
    groups: list[list[ScopeBatch]] = []
    left = 0
    for one in batches:
        if left <= 0:
            groups.append([])
            left = TOGETHER
        groups[-1].append(one)
        left -= 1 + one.size
    return groups


def _applied(projected: Projected) -> AppliedScope:
    parts = () if projected.change is None else projected.change.parts
    return AppliedScope(projected.snapshot, parts, projected.duplicates)


class Patience:
    """How long one scope is tried again: others who write are few, and a killed one's lock ends in a minute."""

    def __init__(self) -> None:
        self._attempts, self._begun = 0, time.monotonic()

    @property
    def locked(self) -> bool:
        """Whether it takes so long that somebody may have been killed in the middle."""
        return time.monotonic() - self._begun > LOCKED_SECONDS

    def allows(self, error: Exception) -> bool:
        """Whether reading anew may help: a conflict, or a transaction of which it is not known how it ended."""
        self._attempts += 1
        if isinstance(error, PyMongoError) and any(map(error.has_error_label, AGAIN)):
            return time.monotonic() - self._begun < LONGEST_LOCK_SECONDS
        return self._attempts < ATTEMPTS and (isinstance(error, Changed) or _taken(error))

    def pause(self) -> float:
        """Seconds until the next attempt, with jitter."""
        return random.uniform(0, min(0.5, 0.01 * 2 ** min(self._attempts, 10)))  # noqa: S311 - nothing secret


def _taken(error: Exception) -> bool:
    """Whether another document has a unique key."""
    if isinstance(error, BulkWriteError):
        details: Any = error.details or {}
        return any(one.get("code") == DUPLICATE_KEY for one in details.get("writeErrors", ()))
    return isinstance(error, DuplicateKeyError)
