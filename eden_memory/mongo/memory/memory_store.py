"""The only writer of memory: what a batch says of a scope becomes documents in one transaction."""

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pymongo import DeleteMany, ReplaceOne, UpdateMany
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError, DuplicateKeyError, PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from eden_memory.domain.names import Names
from eden_memory.domain.projection.memory_batch import ScopeBatch
from eden_memory.domain.projection.projection import project
from eden_memory.domain.projection.stored_memory import Applied, Change, StoredScope
from eden_memory.mongo.memory.memory_documents import Row, row_of
from eden_memory.mongo.memory.memory_loading import MemoryCollections, MemoryLoading
from eden_memory.mongo.source.orphans import Orphans
from schemas.documents import Document

AT_ONCE = 8
"""Transactions of one process at the same time."""
ATTEMPTS = 8
"""How often a scope is read anew because somebody else wrote it first."""
LOCKED_SECONDS = 1.0
LONGEST_LOCK_SECONDS = 90.0
"""A transaction left open locks what it wrote: for 60 s, unless the server is set otherwise."""
DUPLICATE_KEY = 11_000
AGAIN = ("TransientTransactionError", "UnknownTransactionCommitResult")
Operation = ReplaceOne[Row] | UpdateMany | DeleteMany


class Changed(Exception):  # noqa: N818 - a direction: read anew
    """Another writer has changed the scope since it was read."""


class MongoMemoryStore:
    """Reads and writes the collections of one namespace."""

    def __init__(self, database: AsyncDatabase[Row], names: Names, at_once: int = AT_ONCE) -> None:
        self._client = database.client
        self._of = MemoryCollections(database, names)
        self._loading = MemoryLoading(self._of)
        self._slots = asyncio.Semaphore(at_once)
        self._orphans = Orphans(database.client)

    async def apply(self, batches: Sequence[ScopeBatch]) -> Mapping[str, Applied | Exception]:
        """Each scope's batch in a transaction of its own; the error of one leaves the others alone."""
        try:
            stored = await self._loading.load(batches)
        except ValidationError:
            stored = {}  # a document of one scope: each is read alone below, and one of them says so
        results = await asyncio.gather(*(self._scope(one, stored.get(one.key)) for one in batches))
        return {one.key: result for one, result in zip(batches, results, strict=True)}

    async def _scope(self, batch: ScopeBatch, stored: StoredScope | None) -> Applied | Exception:
        try:
            return await self._apply(batch, stored)
        except Exception as error:  # noqa: BLE001 - handed to the caller as this scope's result
            return error

    async def _apply(self, batch: ScopeBatch, stored: StoredScope | None) -> Applied:
        """Apply, reading anew as often as somebody else was first: what was committed then is found."""
        patience = Patience()
        while True:
            if stored is None:
                stored = (await self._loading.load([batch]))[batch.key]
            projected = project(batch, stored)
            if projected.change is None:
                return Applied(projected.snapshot, (), projected.duplicates)
            try:
                async with self._slots:
                    await self._write(projected.change)
                return Applied(projected.snapshot, projected.change.parts, projected.duplicates)
            except (Changed, PyMongoError) as error:
                if not patience.allows(error):
                    raise
            stored = None
            if patience.locked:
                await self._orphans.end()
            await asyncio.sleep(patience.pause())

    async def _write(self, change: Change) -> None:
        async with (
            self._client.start_session() as session,
            await session.start_transaction(
                read_concern=ReadConcern("snapshot"), write_concern=WriteConcern("majority", j=True)
            ),
        ):
            await self._put_snapshot(change, session)
            for collection, operations in self._operations(change):
                if operations:
                    await collection.bulk_write(operations, session=session)

    async def _put_snapshot(self, change: Change, session: AsyncClientSession) -> None:
        """First, so that of two writers one gives way before it has written anything else."""
        if change.snapshot is None:
            return
        row = row_of(change.snapshot)
        if change.based_on is None:
            await self._of.snapshots.insert_one(row, session=session)
            return
        same = {"_id": change.snapshot.id, "revision": change.based_on}
        if not (await self._of.snapshots.replace_one(same, row, session=session)).matched_count:
            raise Changed

    def _operations(self, change: Change) -> list[tuple[AsyncCollection[Row], list[Operation]]]:
        of = self._of
        blobs: list[Operation] = [_put(change.blob)] if change.blob else []
        if change.blob_gone and change.snapshot is not None:
            blobs.append(DeleteMany({"_id": change.snapshot.id}))
        return [
            (
                of.facts,
                [*_remove(change.gone_facts), *_release(change.released), *map(_put, change.facts)],
            ),
            (of.reflections, [*_remove(change.gone_reflections), *map(_put, change.reflections)]),
            (of.consolidated, blobs),
            (of.blobs, [_put(one) for one in change.versions]),
        ]


def _put(document: Document) -> Operation:
    row = row_of(document)
    return ReplaceOne({"_id": row["_id"]}, row, upsert=True)


def _remove(names: Sequence[str]) -> list[Operation]:
    return [DeleteMany({"_id": {"$in": list(names)}})] if names else []


def _release(names: Sequence[str]) -> list[Operation]:
    """Out of the unique index of active texts, before others enter it."""
    return [UpdateMany({"_id": {"$in": list(names)}}, {"$set": {"active": False}})] if names else []


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
