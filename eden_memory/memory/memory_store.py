"""The only writer of memory: a scope's batch becomes documents in one transaction."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from typing import Any

from pydantic import ValidationError
from pymongo import DeleteMany, DeleteOne, InsertOne, ReplaceOne, UpdateMany
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError, DuplicateKeyError, PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from eden_memory.memory.memory_batch import ScopeBatch
from eden_memory.memory.memory_loading_store import MemoryCollections, MemoryLoading, Stored
from eden_memory.memory.projection import project
from eden_memory.memory.snapshot_cache import SnapshotCache
from eden_memory.memory.stored_memory import AppliedScope, Projected, ScopeWrite, StoredScope
from eden_memory.memory.vector_block_store import deletions
from eden_memory.mongo.documents import Row, row_of
from eden_memory.mongo.transactions import Orphans
from eden_memory.names import Names
from eden_memory.schemas.documents import Document
from eden_memory.stages.retry_waits import backoff
from eden_memory.stages.stage import RetryPolicy

AT_ONCE = 8
"""Transactions of one process at the same time."""
ATTEMPTS = 8
"""How often a scope is read again because another writer was first."""
LOCKED_SECONDS = 1.0
LONGEST_LOCK_SECONDS = 90.0
"""A transaction left open locks what it wrote: for 60 s, unless the server is set otherwise."""
TOGETHER = 600
"""Approximate records of one transaction: a commit costs several times as much as one of them."""
DUPLICATE_KEY = 11_000
AGAIN = ("TransientTransactionError", "UnknownTransactionCommitResult")
Operation = InsertOne[Row] | ReplaceOne[Row] | UpdateMany | DeleteMany | DeleteOne


class Changed(Exception):  # noqa: N818 - a direction: read anew
    """Another writer has changed a scope since it was read."""


class MongoMemoryStore:
    """Reads and writes the collections of one namespace."""

    def __init__(self, database: AsyncDatabase[Row], names: Names, at_once: int = AT_ONCE) -> None:
        collections = MemoryCollections(database, names)
        self._client, self._of = database.client, collections
        self._cache = SnapshotCache()
        self._loading = MemoryLoading(collections, self._cache)
        self._slots = asyncio.Semaphore(at_once)
        self._orphans = Orphans(database.client)

    async def load(self, batches: Sequence[ScopeBatch]) -> Stored:
        """Return what each batch touches; nothing if a document cannot be read: `apply` finds out whose it is."""
        try:
            return await self._loading.load(batches)
        except ValidationError:
            return {}

    async def apply(
        self, batches: Sequence[ScopeBatch], stored: Mapping[str, StoredScope] | None = None
    ) -> Mapping[str, AppliedScope | Exception]:
        """Apply each scope's batch, whole or not at all, many in one transaction; an error is of one scope alone."""
        stored = await self.load(batches) if stored is None else stored
        groups = [self._group(group, stored) for group in _groups(batches)]
        return {key: applied for results in await asyncio.gather(*groups) for key, applied in results.items()}

    async def _group(
        self, batches: Sequence[ScopeBatch], stored: Mapping[str, StoredScope]
    ) -> Mapping[str, AppliedScope | Exception]:
        """Apply several scopes in one transaction, and each in one of its own if that fails."""
        if stored:
            with suppress(Exception):  # reading and writing each scope alone shows which one failed
                return await self._together(batches, stored)
        applying = (self._apply(batch) for batch in batches)
        results: dict[str, AppliedScope | Exception] = {}
        for batch, result in zip(
            batches, await asyncio.gather(*applying, return_exceptions=True), strict=True
        ):
            if not isinstance(result, AppliedScope | Exception):
                raise result
            results[batch.key] = result
        return results

    async def _together(
        self, batches: Sequence[ScopeBatch], stored: Mapping[str, StoredScope]
    ) -> Mapping[str, AppliedScope]:
        projected = {batch.key: project(batch, stored[batch.key]) for batch in batches}
        if changes := [result.change for result in projected.values() if result.change is not None]:
            async with self._slots:
                await self._write(changes)
        return {key: _applied(result) for key, result in projected.items()}

    async def _apply(self, batch: ScopeBatch) -> AppliedScope:
        """Apply a batch, and read again whenever another writer was first: what it committed is found then."""
        patience = Patience()
        while True:
            try:
                return (await self._together([batch], await self._loading.load([batch])))[batch.key]
            except (Changed, PyMongoError) as error:
                if not patience.allows(error):
                    raise
            if patience.locked:
                await self._orphans.end()
            await asyncio.sleep(patience.pause())

    async def _write(self, changes: Sequence[ScopeWrite]) -> None:
        """Write one change of each scope, all or none; Changed, or MongoDB's error, where one cannot be written."""
        operations = self._operations(changes)
        async with (
            self._client.start_session() as session,
            await session.start_transaction(
                read_concern=ReadConcern("snapshot"), write_concern=WriteConcern("majority", j=True)
            ),
        ):
            await self._write_snapshots(changes, session)
            for collection, some in operations:
                if some:
                    await collection.bulk_write(some, session=session)
        for change in changes:
            if change.snapshot is not None:
                self._cache.add(change.snapshot)

    async def _write_snapshots(self, changes: Sequence[ScopeWrite], session: AsyncClientSession) -> None:
        """Write the snapshots first: one of two writers then stops before it has written anything else."""
        operations = _snapshots(changes)
        if not operations:
            return
        same = sum(isinstance(operation, ReplaceOne) for operation in operations)
        if (await self._of.snapshots.bulk_write(operations, session=session)).matched_count != same:
            raise Changed

    def _operations(
        self, changes: Sequence[ScopeWrite]
    ) -> list[tuple[AsyncCollection[Row], list[Operation]]]:
        of, known = self._of, frozenset[str]().union(*(change.known for change in changes))
        return [
            (of.facts, _facts(changes, known)),
            (of.reflections, _reflections(changes, known)),
            (of.consolidated, _consolidated(changes, known)),
            (of.blobs, _put([version for change in changes for version in change.versions], known)),
            (of.vectors, [*deletions(changes)]),
        ]


def _groups(batches: Sequence[ScopeBatch]) -> list[list[ScopeBatch]]:
    """Group whole scopes, about `TOGETHER` records in each group."""
    groups: list[list[ScopeBatch]] = []
    left = 0
    for batch in batches:
        if left <= 0:
            groups.append([])
            left = TOGETHER
        groups[-1].append(batch)
        left -= 1 + batch.size
    return groups


def _applied(projected: Projected) -> AppliedScope:
    parts = () if projected.change is None else projected.change.parts
    return AppliedScope(projected.snapshot, parts, projected.duplicates)


CONFLICTS = RetryPolicy(first=0.02, cap=0.5)


class Patience:
    """Retry policy of one scope: other writers are few, and a killed one's lock ends in a minute."""

    def __init__(self) -> None:
        self._attempts, self._overtaken, self._begun = 0, 0, time.monotonic()

    @property
    def locked(self) -> bool:
        """Whether the conflict has lasted so long that a process may have been killed in the middle."""
        return time.monotonic() - self._begun > LOCKED_SECONDS

    def allows(self, error: Exception) -> bool:
        """Return whether reading anew may help: after a conflict, or a commit with an unknown outcome."""
        self._attempts += 1
        if isinstance(error, PyMongoError) and any(map(error.has_error_label, AGAIN)):
            return time.monotonic() - self._begun < LONGEST_LOCK_SECONDS
        self._overtaken += 1
        return self._overtaken < ATTEMPTS and (isinstance(error, Changed) or _taken(error))

    def pause(self) -> float:
        """Return the seconds until the next attempt, with jitter."""
        return backoff(CONFLICTS, self._attempts)


def _taken(error: Exception) -> bool:
    """Return whether another document has a unique key."""
    if isinstance(error, BulkWriteError):
        details: Any = error.details or {}
        return any(detail.get("code") == DUPLICATE_KEY for detail in details.get("writeErrors", ()))
    return isinstance(error, DuplicateKeyError)


def _snapshots(changes: Iterable[ScopeWrite]) -> list[Operation]:
    """Insert new snapshots, and replace others where nobody has changed them since."""
    operations: list[Operation] = []
    for change in changes:
        if (snapshot := change.snapshot) is None:
            continue
        if change.based_on is None:
            operations.append(InsertOne(row_of(snapshot)))
        else:
            same = {"_id": snapshot.id, "revision": change.based_on}
            operations.append(ReplaceOne(same, row_of(snapshot)))
    return sorted(operations, key=lambda operation: isinstance(operation, InsertOne))


def _facts(changes: Sequence[ScopeWrite], known: Set[str]) -> list[Operation]:
    """Delete facts, and free the texts of others, before new ones take them."""
    return [
        *_remove([name for change in changes for name in change.gone_facts]),
        *_release([name for change in changes for name in change.released]),
        *_put([fact for change in changes for fact in change.facts], known),
    ]


def _reflections(changes: Sequence[ScopeWrite], known: Set[str]) -> list[Operation]:
    return [
        *_remove([name for change in changes for name in change.gone_reflections]),
        *_put([reflection for change in changes for reflection in change.reflections], known),
    ]


def _consolidated(changes: Sequence[ScopeWrite], known: Set[str]) -> list[Operation]:
    gone = [change.snapshot.id for change in changes if change.blob_gone and change.snapshot is not None]
    return [*_remove(gone), *_put([change.blob for change in changes if change.blob], known)]


def _put(documents: Iterable[Document], known: Set[str]) -> list[Operation]:
    """Insert what is new, all in one command: that costs the server less than an upsert. Replace the rest.

    An id of another scope is a duplicate key.
    """
    rows = [row_of(document) for document in documents]
    new = [row for row in rows if row["_id"] not in known]
    upserts = [
        ReplaceOne({"_id": row["_id"], "scope_key": row["scope_key"]}, row, upsert=True)
        for row in rows
        if row["_id"] in known
    ]
    return [*map(InsertOne[Row], new), *upserts]


def _remove(names: Sequence[str]) -> list[Operation]:
    return [DeleteMany({"_id": {"$in": list(names)}})] if names else []


def _release(names: Sequence[str]) -> list[Operation]:
    """Take facts out of the unique index of active texts, before others enter it."""
    return [UpdateMany({"_id": {"$in": list(names)}}, {"$set": {"active": False}})] if names else []
