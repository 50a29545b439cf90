"""What is stored of the scopes of a batch, as far as it is touched: a few queries for all scopes together."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pymongo import ReadPreference
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from eden_memory.memory.memory_batch import ScopeBatch
from eden_memory.memory.snapshot_projection import buffered, recent_fact
from eden_memory.memory.stored_memory import StoredScope
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
    Snapshot,
    StoredBlob,
)

D = TypeVar("D", bound=Document)
NO_TEXT = {"content": 0}
Stored = dict[str, StoredScope]


class MemoryCollections:
    """The collections that the writer writes."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        def collection(kind: type[Document]) -> AsyncCollection[Row]:
            return database.get_collection(
                names[kind.COLLECTION],
                read_preference=ReadPreference.PRIMARY,
                read_concern=ReadConcern("majority"),
                write_concern=WriteConcern("majority", j=True),
            )

        self.facts = collection(Fact)
        self.reflections = collection(Reflection)
        self.consolidated = collection(Consolidated)
        self.blobs = collection(StoredBlob)
        self.snapshots = collection(Snapshot)


class MemoryLoading:
    """Reads the snapshots first: a snapshot that is unchanged when it is written says that the rest is too."""

    def __init__(self, collections: MemoryCollections) -> None:
        self._of = collections

    async def load(self, batches: Sequence[ScopeBatch]) -> Stored:
        """What each scope's batch touches, by scope key."""
        snapshots = await self._snapshots(batches)
        stored = {one.key: StoredScope(snapshot=snapshots.get(one.key)) for one in batches}
        await asyncio.gather(
            self._facts(batches, stored),
            self._reflections(batches, stored),
            self._blobs(batches, stored),
            self._highest(batches, stored),
            self._absorbing([(one.key, name) for one in batches for name in one.reflections], stored),
        )
        await asyncio.gather(
            self._same_before(batches, stored),
            self._absorbing(_freed(batches, stored), stored),
            *(self._left(one, stored[one.key]) for one in batches if one.gone_blobs),
        )
        await asyncio.gather(*(self._beyond(one, stored[one.key]) for one in batches))
        return stored

    async def _snapshots(self, batches: Sequence[ScopeBatch]) -> dict[str, Snapshot]:
        return {
            one.id: one
            for one in await _read(
                self._of.snapshots, Snapshot, {"_id": {"$in": [one.key for one in batches]}}
            )
        }

    async def _facts(self, batches: Sequence[ScopeBatch], stored: Stored) -> None:
        """Facts by id, and those of the same scope with the same text."""
        ids = [name for one in batches for name, _ in (*one.facts, *one.gone_facts)]
        hashes = [event.hash for one in batches for event in one.facts.values()]
        if not ids:
            return
        alike = _alike([one.key for one in batches if one.facts or one.gone_facts], hashes)
        query: Row = {"$or": [{"_id": {"$in": ids}}, alike]} if hashes else {"_id": {"$in": ids}}
        _put_facts(await _read(self._of.facts, Fact, query), stored)

    async def _same_before(self, batches: Sequence[ScopeBatch], stored: Stored) -> None:
        """Those that share a text with a stored fact of the batch, which may be about to lose it."""
        asked = {event.hash for one in batches for event in one.facts.values()}
        keys = {
            one.scope_key: one.hash
            for scope in stored.values()
            for one in scope.facts.values()
            if one.hash not in asked
        }
        hashes = {one.hash for scope in stored.values() for one in scope.facts.values()} - asked
        if hashes:
            _put_facts(await _read(self._of.facts, Fact, _alike(list(keys), list(hashes))), stored)

    async def _reflections(self, batches: Sequence[ScopeBatch], stored: Stored) -> None:
        """Reflections by id, those that a blob of the batch lists, and those that a removed blob absorbed."""
        ids = [name for one in batches for name in (*one.reflections, *one.gone_reflections)]
        ids += [name for one in batches for blob in one.blobs.values() for name in blob.absorbed]
        freed: list[Row] = [
            {"scope_key": one.key, "absorbed_into": {"$in": list(one.gone_blobs)}}
            for one in batches
            if one.gone_blobs
        ]
        if not (ids or freed):
            return
        by_id: Row = {"_id": {"$in": ids}}
        query: Row = {"$or": [by_id, *freed]} if freed else by_id
        for one in await _read(self._of.reflections, Reflection, query):
            if one.scope_key in stored:
                stored[one.scope_key].reflections[one.id] = one

    async def _absorbing(self, asked: Sequence[tuple[str, str]], stored: Stored) -> None:
        """Which blob versions list reflections, (scope key, id) each: those of the batch, and freed ones."""
        if not asked:
            return
        query: Row = {
            "scope_key": {"$in": list({key for key, _ in asked})},
            "absorbed": {"$in": [name for _, name in asked]},
        }
        for one in await _read(self._of.blobs, StoredBlob, query, NO_TEXT):
            stored[one.scope_key].absorbing += (one,)

    async def _blobs(self, batches: Sequence[ScopeBatch], stored: Stored) -> None:
        """The blobs' documents, and which of the versions that come or go are known."""
        touched = [one for one in batches if one.blobs or one.gone_blobs]
        if not touched:
            return
        versions = [f"{one.key}@{version}" for one in touched for version in {*one.blobs, *one.gone_blobs}]
        blobs, known = await asyncio.gather(
            _read(self._of.consolidated, Consolidated, {"_id": {"$in": [one.key for one in touched]}}),
            _read(self._of.blobs, StoredBlob, {"_id": {"$in": versions}}, NO_TEXT),
        )
        for blob in blobs:
            stored[blob.scope_key].blob = blob
        for version in known:
            stored[version.scope_key].versions[version.version] = version

    async def _left(self, batch: ScopeBatch, scope: StoredScope) -> None:
        """The newest versions that stay, where one that is shown goes."""
        shown = scope.blob
        if shown is None or not batch.gone_blobs & {shown.version, *(one.version for one in shown.history)}:
            return
        query: Row = {"scope_key": batch.key, "gone": False, "version": {"$nin": list(batch.gone_blobs)}}
        scope.left = tuple(
            await _read(self._of.blobs, StoredBlob, query, sort=[("version", -1)], limit=HISTORY + 1)
        )

    async def _highest(self, batches: Sequence[ScopeBatch], stored: Stored) -> None:
        """The highest number of scopes without snapshot, whose forgotten blobs may have come first."""
        new = [one.key for one in batches if stored[one.key].snapshot is None]
        if not new:
            return
        stages: list[Row] = [
            {"$match": {"scope_key": {"$in": new}}},
            {"$group": {"_id": "$scope_key", "highest": {"$max": "$version"}}},
        ]
        async for row in await self._of.blobs.aggregate(stages):
            stored[row["_id"]].highest = int(row["highest"])

    async def _beyond(self, batch: ScopeBatch, scope: StoredScope) -> None:
        """What may come up in place of what leaves the snapshot's lists."""
        snapshot = scope.snapshot
        if snapshot is None:
            return
        recent = {one.fact_id for one in snapshot.recent_facts}
        if snapshot.active_facts > len(recent) and recent & set(scope.facts):
            query: Row = {"scope_key": batch.key, "active": True, "_id": {"$nin": list(scope.facts)}}
            order = [("valid_from", -1), ("_id", 1)]
            rows = await _read(self._of.facts, Fact, query, {"embedding": 0}, sort=order, limit=RECENT_FACTS)
            scope.other_facts = tuple(map(recent_fact, rows))
        if len(snapshot.buffer) >= BUFFER and (batch.blobs or batch.gone_reflections or batch.gone_blobs):
            scope.other_reflections = await self._oldest_buffered(batch.key, list(scope.reflections))

    async def _oldest_buffered(self, key: str, but: list[str]) -> tuple[BufferedReflection, ...]:
        """The first of a buffer, and of those without `said_at`, which an earlier version stored, as many again."""
        query: Row = {"scope_key": key, "absorbed": False, "_id": {"$nin": but}}
        order = [("said_at", 1), ("formed_at", 1), ("position", 1), ("_id", 1)]
        left = [
            await _read(self._of.reflections, Reflection, query | said, sort=order, limit=BUFFER)
            for said in ({"said_at": None}, {"said_at": {"$ne": None}})
        ]
        return tuple(buffered(one) for half in left for one in half)


def _freed(batches: Iterable[ScopeBatch], stored: Stored) -> list[tuple[str, str]]:
    """Reflections that a blob absorbed which the batch removes."""
    return [
        (one.key, name)
        for one in batches
        if one.gone_blobs
        for name, old in stored[one.key].reflections.items()
        if old.absorbed_into in one.gone_blobs
    ]


def _alike(keys: Sequence[str], hashes: Sequence[str]) -> Row:
    return {"scope_key": {"$in": keys}, "hash": {"$in": hashes}, "retired_at": None}


def _put_facts(facts: Iterable[Fact], stored: Stored) -> None:
    for one in facts:
        if one.scope_key in stored:
            stored[one.scope_key].facts[one.id] = one


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
