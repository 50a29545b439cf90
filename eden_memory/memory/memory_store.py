"""The only writer of memory: it loads a scope's memory, and writes its batch as documents in one transaction."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from typing import Any, TypeVar

from pydantic import ValidationError
from pymongo import DeleteMany, DeleteOne, InsertOne, ReplaceOne, UpdateMany
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError, DuplicateKeyError, PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from eden_memory.memory.memory_batch import AppliedScope, Projected, ScopeBatch, ScopeWrite, StoredScope
from eden_memory.memory.memory_index_store import deletions
from eden_memory.memory.projection import project
from eden_memory.memory.snapshot_projection import buffered, lasting, recent_fact
from eden_memory.memory.snapshot_store import SnapshotCache
from eden_memory.mongo.client import majority
from eden_memory.mongo.documents import Row, document_of, row_of
from eden_memory.mongo.refusals import DUPLICATE_KEY
from eden_memory.mongo.transactions import Orphans
from eden_memory.names import Names
from eden_memory.schemas.documents import (
    BUFFER,
    HISTORY,
    LASTING_FACTS,
    RECENT_FACTS,
    BufferedReflection,
    Consolidated,
    Document,
    Fact,
    Reflection,
    ScopeVectors,
    Snapshot,
    StoredBlob,
)
from eden_memory.stages.retry_waits import backoff
from eden_memory.stages.stage import RetryPolicy

D = TypeVar("D", bound=Document)
NO_TEXT = {"content": 0}
SMALL_SCOPE = 30
"""Facts of a scope, at most."""
Stored = dict[str, StoredScope]


class MemoryCollections:
    """The collections that the writer writes."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        def collection(kind: type[Document]) -> AsyncCollection[Row]:
            return majority(database, names[kind.COLLECTION])

        self.facts = collection(Fact)
        self.reflections = collection(Reflection)
        self.consolidated = collection(Consolidated)
        self.blobs = collection(StoredBlob)
        self.snapshots = collection(Snapshot)
        self.vectors = collection(ScopeVectors)


class MemoryLoading:
    """Reads the snapshots first: if one is unchanged at the write, the rest is unchanged, too."""

    def __init__(self, collections: MemoryCollections, cache: SnapshotCache) -> None:
        self._of, self._cache = collections, cache

    async def load(self, batches: Sequence[ScopeBatch]) -> Stored:
        """Return the stored memory that each scope's batch touches, by scope key."""
        snapshots = await self._snapshots([batch.key for batch in batches])
        stored = {batch.key: StoredScope(snapshot=snapshots.get(batch.key)) for batch in batches}
        await asyncio.gather(
            self._facts(batches, stored),
            self._reflections(batches, stored),
            self._blobs(batches, stored),
            self._highest(batches, stored),
            self._absorbing(
                [(batch.key, name) for batch in batches for name in batch.reflection_ids], stored
            ),
        )
        await asyncio.gather(
            self._same_before(batches, stored),
            self._absorbing(_freed(batches, stored), stored),
            *(self._left(batch, stored[batch.key]) for batch in batches if batch.gone_blobs),
        )
        await asyncio.gather(*(self._beyond(batch, stored[batch.key]) for batch in batches))
        return stored

    async def _snapshots(self, keys: Sequence[str]) -> dict[str, Snapshot]:
        """Load snapshots; of cached ones only the revision, if it is still the same."""
        cached = self._cache.among(keys)
        asked: Row = {"_id": {"$in": list(cached)}}
        revisions = await self._of.snapshots.find(asked, {"revision": 1}).to_list() if cached else []
        same = {row["_id"] for row in revisions if row.get("revision") == cached[row["_id"]].revision}
        found = {key: cached[key] for key in same}
        if other := [key for key in keys if key not in same]:
            read = await _read(self._of.snapshots, Snapshot, {"_id": {"$in": other}})
            found |= {snapshot.id: snapshot for snapshot in read}
        return found

    async def _facts(self, batches: Sequence[ScopeBatch], stored: Stored) -> None:
        """Load facts by id, and those of the same scope with the same text."""
        ids = [name for batch in batches for name, _ in (*batch.facts, *batch.gone_facts, *batch.dropped)]
        if not ids:
            return
        hashes = {batch.key: {event.hash for event in batch.facts.values()} for batch in batches}
        query: Row = {"$or": [{"_id": {"$in": ids}}, *_alike(hashes, stored)]}
        _put_facts(await _read(self._of.facts, Fact, query), stored)

    async def _same_before(self, batches: Sequence[ScopeBatch], stored: Stored) -> None:
        """Load facts that share a text with a stored fact of the batch, which may be about to lose it."""
        hashes = {
            batch.key: {fact.hash for fact in stored[batch.key].facts.values()}
            - {event.hash for event in batch.facts.values()}
            for batch in batches
        }
        if alike := _alike(hashes, stored):
            _put_facts(await _read(self._of.facts, Fact, {"$or": alike}), stored)

    async def _reflections(self, batches: Sequence[ScopeBatch], stored: Stored) -> None:
        """Load reflections by id, those that a blob of the batch lists, and those that a removed blob absorbed."""
        ids = [name for batch in batches for name in batch.reflection_ids]
        ids += [name for batch in batches for blob in batch.blobs.values() for name in blob.absorbed]
        freed: list[Row] = [
            {"scope_key": batch.key, "absorbed_into": {"$in": list(batch.gone_blobs)}}
            for batch in batches
            if batch.gone_blobs
        ]
        if not (ids or freed):
            return
        by_id: Row = {"_id": {"$in": ids}}
        query: Row = {"$or": [by_id, *freed]} if freed else by_id
        for reflection in await _read(self._of.reflections, Reflection, query):
            if reflection.scope_key in stored:
                stored[reflection.scope_key].reflections[reflection.id] = reflection

    async def _absorbing(self, asked: Sequence[tuple[str, str]], stored: Stored) -> None:
        """Load blob versions that list these reflections, each a (scope key, id).

        As with texts (see `_alike`), each scope is asked for its own only. One without a snapshot has no blob.
        """
        of_scope: dict[str, set[str]] = {}
        for key, name in asked:
            if stored[key].snapshot is not None:
                of_scope.setdefault(key, set()).add(name)
        if not of_scope:
            return
        each: list[Row] = [
            {"scope_key": key, "absorbed": {"$in": list(names)}} for key, names in of_scope.items()
        ]
        for blob in await _read(self._of.blobs, StoredBlob, {"$or": each}, NO_TEXT):
            stored[blob.scope_key].absorbing += (blob,)

    async def _blobs(self, batches: Sequence[ScopeBatch], stored: Stored) -> None:
        """Load the newest blobs, and the known ones among the versions that are added or removed."""
        touched = [batch for batch in batches if batch.blobs or batch.gone_blobs]
        if not touched:
            return
        versions = [
            f"{scope_batch.key}@{version}"
            for scope_batch in touched
            for version in {*scope_batch.blobs, *scope_batch.gone_blobs}
        ]
        blobs, known = await asyncio.gather(
            _read(
                self._of.consolidated,
                Consolidated,
                {"_id": {"$in": [scope_batch.key for scope_batch in touched]}},
            ),
            _read(self._of.blobs, StoredBlob, {"_id": {"$in": versions}}, NO_TEXT),
        )
        for blob in blobs:
            stored[blob.scope_key].blob = blob
        for version in known:
            stored[version.scope_key].versions[version.version] = version

    async def _left(self, batch: ScopeBatch, scope: StoredScope) -> None:
        """Load the newest remaining versions, for scopes whose shown version is removed."""
        shown = scope.blob
        if shown is None or not batch.gone_blobs & {
            shown.version,
            *(version.version for version in shown.history),
        }:
            return
        query: Row = {"scope_key": batch.key, "gone": False, "version": {"$nin": list(batch.gone_blobs)}}
        scope.left = tuple(
            await _read(self._of.blobs, StoredBlob, query, sort=[("version", -1)], limit=HISTORY + 1)
        )

    async def _highest(self, batches: Sequence[ScopeBatch], stored: Stored) -> None:
        """Load the highest blob version of scopes without snapshot, whose forgotten blobs may have come first."""
        new = [batch.key for batch in batches if stored[batch.key].snapshot is None]
        if not new:
            return
        stages: list[Row] = [
            {"$match": {"scope_key": {"$in": new}}},
            {"$group": {"_id": "$scope_key", "highest": {"$max": "$version"}}},
        ]
        async for row in await self._of.blobs.aggregate(stages):
            stored[row["_id"]].highest = int(row["highest"])

    async def _beyond(self, batch: ScopeBatch, scope: StoredScope) -> None:
        """Load what may move up in place of what leaves the snapshot's lists."""
        snapshot = scope.snapshot
        if snapshot is None:
            return
        recent = {fact.fact_id for fact in snapshot.recent_facts}
        if snapshot.active_facts > len(recent) and recent & set(scope.facts):
            query: Row = {"scope_key": batch.key, "active": True, "_id": {"$nin": list(scope.facts)}}
            order = [("valid_from", -1), ("_id", 1)]
            rows = await _read(self._of.facts, Fact, query, {"embedding": 0}, sort=order, limit=RECENT_FACTS)
            scope.other_facts = tuple(map(recent_fact, rows))
        kept = {fact.fact_id for fact in snapshot.lasting_facts}
        if len(kept) == LASTING_FACTS and kept & set(scope.facts):
            query = {"scope_key": batch.key, "active": True, "_id": {"$nin": list(scope.facts)}}
            rows = await _read(self._of.facts, Fact, query, {"embedding": 0, "history": 0})
            scope.other_lasting = tuple(lasting(map(recent_fact, rows))[:LASTING_FACTS])
        leaves = batch.blobs or batch.gone_blobs or batch.gone_reflections or batch.retired
        if len(snapshot.buffer) >= BUFFER and leaves:
            scope.other_reflections = await self._oldest_buffered(batch.key, list(scope.reflections))

    async def _oldest_buffered(self, key: str, but: list[str]) -> tuple[BufferedReflection, ...]:
        """Load the first of a buffer."""
        query: Row = {"scope_key": key, "absorbed": False, "retired_at": None, "_id": {"$nin": but}}
        order = [("said_at", 1), ("formed_at", 1), ("position", 1), ("_id", 1)]
        left = await _read(self._of.reflections, Reflection, query, sort=order, limit=BUFFER)
        return tuple(map(buffered, left))


def _freed(batches: Iterable[ScopeBatch], stored: Stored) -> list[tuple[str, str]]:
    """Return reflections that a blob absorbed which the batch removes."""
    return [
        (batch.key, name)
        for batch in batches
        if batch.gone_blobs
        for name, old in stored[batch.key].reflections.items()
        if old.absorbed_into in batch.gone_blobs
    ]


def _alike(hashes: Mapping[str, Set[str]], stored: Stored) -> list[Row]:
    """Return queries for facts that are not retired by scope and text; a scope without snapshot has none.

    The index is walked through all facts of a scope where many hashes are asked for in several scopes at once,
    so only small scopes share a query.
    """
    queries: list[Row] = []
    small: dict[str, Set[str]] = {}
    for key, of_scope in hashes.items():
        snapshot = stored[key].snapshot
        if not of_scope or snapshot is None:
            continue
        if snapshot.active_facts <= SMALL_SCOPE:
            small[key] = of_scope
        else:
            queries.append({"scope_key": key, "hash": {"$in": list(of_scope)}, "retired_at": None})
    if small:
        asked = list(set[str]().union(*small.values()))
        queries.append({"scope_key": {"$in": list(small)}, "hash": {"$in": asked}, "retired_at": None})
    return queries


def _put_facts(facts: Iterable[Fact], stored: Stored) -> None:
    for fact in facts:
        if fact.scope_key in stored:
            stored[fact.scope_key].facts[fact.id] = fact


async def _read(
    collection: AsyncCollection[Row],
    kind: type[D],
    query: Mapping[str, Any],
    projection: Mapping[str, Any] | None = None,
    *,
    sort: Sequence[tuple[str, int]] | None = None,
    limit: int = 0,
) -> list[D]:
    rows = await collection.find(query, projection, sort=sort, limit=limit).to_list()
    return [document_of(kind, row) for row in rows]


AT_ONCE = 8
"""Transactions of one process at the same time."""
ATTEMPTS = 8
"""How often a scope is read again because another writer was first."""
LOCKED_SECONDS = 1.0
LONGEST_LOCK_SECONDS = 90.0
"""A transaction left open locks what it wrote: for 60 s, unless the server is set otherwise."""
TOGETHER = 600
"""Approximate records of one transaction: a commit costs several times as much as one of them."""
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
