"""Facts by meaning on a plain replica set: exact cosine in the process, over cached vectors.

Each use first reads what the writer has changed since (one query by the scope's revision), so what is found is
as new as the store. What is found is read whole from the store: a fact that is gone or retired is never returned.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from pydantic import TypeAdapter
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.formation.fact_statements import KnownFact, Near
from eden_memory.memory.scope_matrix import Hit, ScopeMatrix
from eden_memory.mongo.documents import packed_of
from eden_memory.mongo.transactions import SharedReads
from eden_memory.names import Names
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.tasks import in_thread

Row = dict[str, Any]
FIELDS = (
    "scope_key",
    "content",
    "hash",
    "embedding",
    "embedding_model",
    "version",
    "active",
    "sources",
    "formed_at",
    "said_at",
    "occurred_at",
    "valid_from",
    "expires_at",
    "private",
    "retired_at",
    "retired_because",
    "replaces",
    "replaced_by",
)
_SOURCES: TypeAdapter[tuple[SourceMessage, ...]] = TypeAdapter(tuple[SourceMessage, ...])


def known_fact(row: Row) -> KnownFact:
    """Read a stored fact and check its sources."""
    retired_at = row.get("retired_at")
    return KnownFact(
        fact_id=row["_id"],
        version=row["version"],
        scope_key=row["scope_key"],
        text=row["content"],
        hash=row["hash"],
        vector=packed_of(row.get("embedding")),
        embedding_model=row.get("embedding_model"),
        sources=_SOURCES.validate_python(row.get("sources", ()), strict=False, extra="ignore"),
        formed_at=row["formed_at"],
        valid_from=row["valid_from"],
        said_at=row["said_at"],
        occurred_at=row.get("occurred_at"),
        expires_at=row.get("expires_at"),
        private=row.get("private", False),
        retired=retired_at is not None,
        replaces=row.get("replaces"),
        replaced_by=row.get("replaced_by"),
        retired_at=retired_at,
        retired_because=row.get("retired_because"),
    )


MOST_BYTES = 512_000_000
"""Vectors kept in one process; scopes that were not used for the longest time leave first."""
THREAD_PRODUCTS = 2_000_000
"""From this many multiplications on they are done beside the event loop."""
AT_ONCE = 500
Named = tuple[str | None, str]
"""An active fact by its scope's key and the hash of its text; None and an id: that fact."""


class _CachedVectors:
    """The cached vectors of one scope, as of a revision."""

    def __init__(self, dimensions: int) -> None:
        self.matrix = ScopeMatrix(dimensions)
        self.revision = -1
        self.other_model: set[str] = set()
        """Facts whose vector is another model's: they cannot be compared."""
        self.lock = asyncio.Lock()


class MongoFactSearch:
    """Searches `facts`, kept current by the revisions in `snapshots`; `model` is the embedder's.

    `skipped` is told how many facts of a scope could not be compared, because another model made their vectors.
    """

    def __init__(
        self,
        database: AsyncDatabase[Row],
        names: Names,
        model: str,
        *,
        most_bytes: int = MOST_BYTES,
        skipped: Callable[[int], None] = lambda _: None,
    ) -> None:
        majority = ReadConcern("majority")
        self._facts = database.get_collection(names["facts"], read_concern=majority)
        self._snapshots = database.get_collection(names["snapshots"], read_concern=majority)
        self._model, self._most_bytes, self._skipped = model, most_bytes, skipped
        self._kept: OrderedDict[str, _CachedVectors] = OrderedDict()
        self._reads = SharedReads(self._read)
        self._marks = SharedReads(self._read_marks)

    @property
    def kept_bytes(self) -> int:
        """The approximate size of the cached vectors, in bytes."""
        return sum(cached.matrix.size for cached in self._kept.values())

    async def nearest(
        self, scope_key: str, vectors: Sequence[bytes], most: int, least: float
    ) -> Sequence[Sequence[Near]]:
        """Return for each vector the nearest active facts of the scope, best first; exact."""
        if not vectors:
            return []
        kept = self._of(scope_key, len(vectors[0]) // 4)
        async with kept.lock:
            await self._refresh(scope_key, kept)
            while True:
                hits = await _compared(kept.matrix, vectors, most, least)
                rows = await self._active({hit.fact_id for found in hits for hit in found})
                gone = {hit.fact_id for found in hits for hit in found} - rows.keys()
                if not gone:
                    break
                for fact_id in gone:
                    kept.matrix.remove(fact_id)
        self._shrink(scope_key)
        self._skipped(len(kept.other_model))
        return [[Near(rows[hit.fact_id], hit.similarity) for hit in found] for found in hits]

    async def with_hash(self, scope_key: str, hashes: Iterable[str]) -> Sequence[KnownFact]:
        """Return the active facts of the scope whose text has one of these hashes."""
        found = await self._reads.get((scope_key, text_hash) for text_hash in hashes)
        return list(found.values())

    async def facts(self, fact_ids: Iterable[str]) -> Mapping[str, KnownFact]:
        """Return facts by id, retired ones included."""
        found = await self._reads.get((None, fact_id) for fact_id in fact_ids)
        return {fact.fact_id: fact for fact in found.values()}

    async def _read(self, wanted: list[Named]) -> dict[Named, KnownFact]:
        """Read facts by hash or id for all look-ups of the same moment, in one query."""
        of_scopes: dict[str, list[str]] = {}
        for scope_key, text_hash in wanted:
            if scope_key is not None:
                of_scopes.setdefault(scope_key, []).append(text_hash)
        clauses: list[Row] = [
            {"scope_key": scope_key, "hash": {"$in": hashes}, "active": True}
            for scope_key, hashes in of_scopes.items()
        ]
        if ids := [name for scope_key, name in wanted if scope_key is None]:
            clauses.append({"_id": {"$in": ids}})
        found: dict[Named, KnownFact] = {}
        for row in await self._facts.find({"$or": clauses}, FIELDS).to_list():
            fact = known_fact(row)
            found[None, fact.fact_id] = fact
            if row["active"]:
                found[fact.scope_key, fact.hash] = fact
        return found

    async def _active(self, fact_ids: set[str]) -> dict[str, KnownFact]:
        query = {"_id": {"$in": list(fact_ids)}, "active": True}
        if not fact_ids:
            return {}
        return {row["_id"]: known_fact(row) async for row in self._facts.find(query, FIELDS)}

    def _of(self, scope_key: str, dimensions: int) -> _CachedVectors:
        kept = self._kept.pop(scope_key, None)
        if kept is None or kept.matrix.dimensions != dimensions:
            kept = _CachedVectors(dimensions)
        self._kept[scope_key] = kept
        return kept

    async def _refresh(self, scope_key: str, kept: _CachedVectors) -> None:
        """Bring the cache up to date in the order of revisions; read all anew if documents were removed.

        The marks are read beside it: what was removed before them and read is found to be gone when it is used.
        """
        found, newest = await asyncio.gather(
            self._marks.get([scope_key]), self._take_in_since(scope_key, kept)
        )
        marks = found.get(scope_key)
        if marks is not None and kept.revision >= 0:
            older = marks["revision"] < kept.revision
            if older or marks.get("reset_revision", 0) > kept.revision:
                kept.matrix, kept.revision, kept.other_model = ScopeMatrix(kept.matrix.dimensions), -1, set()
                newest = await self._take_in_since(scope_key, kept)
        kept.revision = newest

    async def _read_marks(self, scope_keys: list[str]) -> dict[str, Row]:
        named = self._snapshots.find({"_id": {"$in": scope_keys}}, {"revision": 1, "reset_revision": 1})
        return {row["_id"]: row for row in await named.to_list()}

    async def _take_in_since(self, scope_key: str, kept: _CachedVectors) -> int:
        """Read what is newer than the cache; return the newest revision."""
        changed = self._facts.find(
            {"scope_key": scope_key, "revision": {"$gt": kept.revision}},
            {"embedding": 1, "embedding_model": 1, "active": 1, "revision": 1},
            batch_size=AT_ONCE,
        ).sort("revision")
        newest = kept.revision
        async for row in changed:
            self._take_in(kept, row)
            newest = max(newest, row["revision"])
        return newest

    def _take_in(self, kept: _CachedVectors, row: Row) -> None:
        fact_id, vector = row["_id"], packed_of(row.get("embedding"))
        kept.other_model.discard(fact_id)
        if not row["active"] or vector is None:
            kept.matrix.remove(fact_id)
        elif row.get("embedding_model") != self._model or not kept.matrix.put(fact_id, vector):
            kept.matrix.remove(fact_id)
            kept.other_model.add(fact_id)

    def _shrink(self, used: str) -> None:
        """Evict scopes until the rest fits, but never the one in use."""
        size = self.kept_bytes
        for scope_key in list(self._kept):
            if size <= self._most_bytes:
                return
            if scope_key != used and not self._kept[scope_key].lock.locked():
                size -= self._kept.pop(scope_key).matrix.size


async def _compared(
    matrix: ScopeMatrix, vectors: Sequence[bytes], most: int, least: float
) -> list[list[Hit]]:
    if len(matrix) * matrix.dimensions * len(vectors) < THREAD_PRODUCTS:
        return matrix.nearest(vectors, most, least)
    return await in_thread(partial(matrix.nearest, vectors, most, least))
