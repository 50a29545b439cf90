"""Loads the stored memory that a batch touches: a few queries for all its scopes together."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, TypeVar

from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.memory.memory_batch import ScopeBatch
from eden_memory.memory.snapshot_cache import SnapshotCache
from eden_memory.memory.snapshot_projection import buffered, recent_fact
from eden_memory.memory.stored_memory import StoredScope
from eden_memory.mongo.client import majority
from eden_memory.mongo.documents import Row, document_of
from eden_memory.names import Names
from eden_memory.schemas.documents import (
    BUFFER,
    HISTORY,
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
