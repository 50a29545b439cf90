"""Copies the vectors of large scopes into blocks, which first searches read (`stored_vector_store`)."""

import asyncio
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from typing import Any, cast
from uuid import uuid4

from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.logs import LibraryLogger
from eden_memory.memory.vector_block_store import LARGE_SCOPE, blocks_of
from eden_memory.mongo.client import majority
from eden_memory.mongo.transactions import Transactions
from eden_memory.names import Names
from eden_memory.schemas.documents import Fact, ScopeVectors, Snapshot
from eden_memory.search.quick_matrix import ENCODING, QuickMatrix
from eden_memory.search.search_documents import KEPT, CachedFact, cached_facts
from eden_memory.search.search_index_store import has_search
from eden_memory.search.stored_vector_store import is_usable
from eden_memory.task_ending import one_ahead

Row = dict[str, Any]
ROUND_SECONDS, PAUSE_SECONDS = 60.0, 30.0
"""Between two rounds, and after one that failed."""
BLOCK_FACTS, BLOCK_BYTES = 4_096, 8_000_000
"""Of a block, at most: MongoDB's documents have at most 16 MB."""
READ_AT_ONCE = 1_000
"""Facts in a batch."""
CHANGED_SHARE = 0.1
"""Of a scope's facts: when more have changed, its vectors are copied again."""

log = LibraryLogger()


class CopyEnded(Exception):  # noqa: N818 - a direction: begin again
    """A fact was forgotten, or another process has begun, while vectors were copied."""


class VectorCopies:
    """Makes the blocks of one namespace, one scope after the other."""

    def __init__(self, database: AsyncDatabase[Row], names: Names, *, adapter: str = "plain") -> None:
        self._database, self._names, self._adapter = database, names, adapter
        self._facts = majority(database, names[Fact.COLLECTION])
        self._snapshots = majority(database, names[Snapshot.COLLECTION])
        self._vectors = majority(database, names[ScopeVectors.COLLECTION])
        self._transactions = Transactions(database.client)

    async def round(self) -> int:
        """Copy what is missing or behind, delete what no scope needs any more; return how many scopes were copied."""
        large = await self._large()
        await self._delete_all_but(large)
        behind = [marks for marks in large.values() if await self._is_behind(marks)]
        return sum([await self._copied(marks) for marks in behind])

    async def _large(self) -> dict[str, Row]:
        """Return the marks of large scopes; none where Atlas searches."""
        if self._adapter == "atlas" or (
            self._adapter == "auto" and await has_search(self._database, self._names)
        ):
            return {}
        wanted = ("agent_id", "revision", "reset_revision", "active_facts")
        found = self._snapshots.find({"active_facts": {"$gte": LARGE_SCOPE}}, wanted)
        return {row["_id"]: row async for row in found}

    async def _delete_all_but(self, large: Iterable[str]) -> None:
        heads = self._vectors.find({"_id": {"$not": {"$regex": "/"}}}, {"_id": 1}).hint("_id_")
        for key in {row["_id"] async for row in heads} - {*large}:
            await self._vectors.delete_one({"_id": key})
            await self._vectors.delete_many(blocks_of(key))

    async def _is_behind(self, marks: Mapping[str, Any]) -> bool:
        head = await self._vectors.find_one({"_id": marks["_id"]})
        if head is None or not is_usable(head, marks, await self._model(marks["_id"])):
            return True
        most = round(CHANGED_SHARE * marks["active_facts"])
        later: Row = {"scope_key": marks["_id"], "revision": {"$gt": head["revision"]}}
        return await self._facts.count_documents(later, limit=most + 1) > most

    async def _model(self, key: str) -> str | None:
        """Return the model of the scope's newest vector."""
        asked: Row = {"scope_key": key, "active": True, "embedding_model": {"$ne": None}}
        newest = await self._facts.find_one(asked, ("embedding_model",), sort=[("revision", -1)])
        return None if newest is None else newest["embedding_model"]

    async def _copied(self, marks: Mapping[str, Any]) -> bool:
        copy = VectorCopy(marks["_id"], self._vectors, self._transactions)
        try:
            await copy.begin(marks["agent_id"])
            return await self._copy(copy)
        except CopyEnded:
            return False

    async def _copy(self, copy: "VectorCopy") -> bool:
        """Copy all vectors; the revision is read before them, and after nobody can miss that they are copied."""
        now, model = await self._snapshots.find_one({"_id": copy.key}), await self._model(copy.key)
        if now is None or model is None:
            return False
        found = self._facts.find_raw_batches(
            {"scope_key": copy.key, "active": True}, KEPT, batch_size=READ_AT_ONCE
        )
        async for batch in one_ahead(cast("AsyncIterable[bytes]", found)):
            facts = await asyncio.to_thread(cached_facts, batch, model)
            await copy.add([fact for fact in facts.values() if fact is not None and fact.vector])
        await copy.end(model, now["revision"])
        log.info("vectors of a large scope copied", facts=copy.facts, blocks=copy.blocks)
        return True


class VectorCopy:
    """The blocks of one scope that are being written; CopyEnded where they must not be any more."""

    def __init__(self, key: str, vectors: AsyncCollection[Row], transactions: Transactions) -> None:
        self.key, self._vectors, self._transactions = key, vectors, transactions
        self._name = uuid4().hex
        self._matrix: QuickMatrix | None = None
        self._added: dict[str, CachedFact] = {}
        self.blocks = self.facts = 0

    async def begin(self, agent_id: str) -> None:
        """Make the document that forgetting deletes or writes, and in which every block is counted."""
        begun: Row = {"agent_id": agent_id, "making": self._name, "written": 0}
        await self._vectors.update_one({"_id": self.key}, {"$set": begun}, upsert=True)

    async def add(self, facts: Sequence[CachedFact]) -> None:
        """Add facts with vectors, and write a block once there are enough."""
        if not facts:
            return
        matrix = self._matrix = self._matrix or QuickMatrix(len(facts[0].vector) // 4)
        await asyncio.to_thread(matrix.put, {fact.fact_id: fact.vector for fact in facts})
        self._added |= {fact.fact_id: fact for fact in facts}
        if len(matrix) >= BLOCK_FACTS - READ_AT_ONCE or matrix.size > BLOCK_BYTES:
            await self._write(matrix)

    async def end(self, model: str, revision: int) -> None:
        """Let searches read these blocks, and delete earlier ones."""
        if self._matrix is None:
            return
        await self._write(self._matrix)
        made: Row = {"made": self._name, "blocks": self.blocks, "facts": self.facts, "model": model}
        made |= {"dimensions": self._matrix.dimensions, "encoding": ENCODING, "revision": revision}
        ended = await self._vectors.update_one(
            self._mine, {"$set": made, "$unset": {"making": "", "written": ""}}
        )
        if not ended.matched_count:
            raise CopyEnded
        earlier: Row = {"$nor": [blocks_of(self.key, self._name)]}
        await self._vectors.delete_many({"$and": [blocks_of(self.key), earlier]})

    @property
    def _mine(self) -> Row:
        return {"_id": self.key, "making": self._name}

    async def _write(self, matrix: QuickMatrix) -> None:
        block = self._block(matrix)

        async def put(session: AsyncClientSession) -> None:
            counted = await self._vectors.update_one(self._mine, {"$inc": {"written": 1}}, session=session)
            if not counted.matched_count:
                raise CopyEnded
            await self._vectors.insert_one(block, session=session)

        await self._transactions.run(put)
        self.blocks, self.facts = self.blocks + 1, self.facts + len(matrix)
        self._matrix, self._added = QuickMatrix(matrix.dimensions), {}

    def _block(self, matrix: QuickMatrix) -> Row:
        fact_ids, numbers = matrix.stored()
        facts = [self._added[fact_id] for fact_id in fact_ids]
        expiring = [fact for fact in facts if fact.expires_at is not None]
        return {
            "_id": f"{self.key}/{self._name}/{self.blocks:06}",
            "fact_ids": fact_ids,
            "numbers": numbers,
            "of_users": [fact.fact_id for fact in facts if fact.of_users],
            "expiring": [fact.fact_id for fact in expiring],
            "expires_at": [fact.expires_at for fact in expiring],
        }
