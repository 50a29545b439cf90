"""Vectors of large scopes as blocks in MongoDB: copied in the background, read by first searches, compared quickly.

A vector of length 1 is stored as int8, by its own greatest number, and what int8 leaves over as 2, 4 or 8 bits more.
The first pass reads only the int8, and is off by about 0.002; of the facts that it finds nearest, several times as
many as asked for are compared by all their bits.

Blocks are copies of what facts hold, without texts, as of a revision; later changes are read from the facts
(eden_memory.search.stored_vector_store makes them).
"""

import asyncio
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast
from uuid import uuid4

import numkong
import numpy as np
from numpy.typing import NDArray
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.logs import LibraryLogger
from eden_memory.memory.memory_index_store import LARGE_SCOPE, blocks_of
from eden_memory.memory.scope_matrix import FactRows, Floats, Hit, best, similarities
from eden_memory.mongo.client import majority
from eden_memory.mongo.documents import quickly_decoded
from eden_memory.mongo.transactions import Transactions
from eden_memory.names import Names
from eden_memory.schemas.documents import Fact, ScopeVectors, Snapshot
from eden_memory.search.atlas_list_store import has_search
from eden_memory.search.fact_candidates import KEPT, CachedFact, cached_facts
from eden_memory.tasks import one_ahead

log = LibraryLogger()


POOL_TIMES, POOL_LEAST = 4, 200

"""Vectors compared with all bits: this many times the number asked for, and at least so many."""

REST_BYTES = 192
"""Approximate bytes of a vector beside its int8: with more dimensions, each number's error matters less."""

ENCODING = "int8+rest"
"""The stored name of this encoding."""

Levels = NDArray[np.uint8]


class QuickMatrix:
    """Packed float32 vectors (schemas.fields.pack_vector) by fact id; all have `dimensions` numbers.

    There is room for so many facts from the start; for more, all are copied now and then.
    """

    def __init__(self, dimensions: int, room: int = 0) -> None:
        self.dimensions = dimensions
        bits = next((bits for bits in (8, 4) if bits * dimensions <= 8 * REST_BYTES), 2)
        self._shifts, self._most = range(0, 8, bits), 2**bits - 2
        packed = -(-dimensions * bits // 8)
        coarse, rest = np.zeros((room, dimensions), np.int8), np.zeros((room, packed), np.uint8)
        self._facts = FactRows(coarse, rest, np.zeros(room, np.float32), growth=1 / 32)

    def __len__(self) -> int:
        return len(self._facts)

    @property
    def size(self) -> int:
        """Its approximate size in memory, in bytes."""
        return self._facts.size

    def put(self, vectors: Mapping[str, bytes]) -> None:
        """Add or replace a fact; one whose vector has another length is removed."""
        for fact_id in [fact_id for fact_id, vector in vectors.items() if not self.fits(vector)]:
            self._facts.remove(fact_id)
        fitting = {fact_id: vector for fact_id, vector in vectors.items() if self.fits(vector)}
        rows, numbers = self._facts.rows(fitting), np.frombuffer(b"".join(fitting.values()), "<f4")
        for array, values in zip(
            self._facts.arrays, self._shortened(numbers.reshape(-1, self.dimensions)), strict=True
        ):
            array[rows] = values

    def stored(self) -> tuple[list[str], list[bytes]]:
        """Return all fact ids, and their numbers as :meth:`restore` takes them."""
        return [*self._facts.ids], [array[: len(self)].tobytes() for array in self._facts.arrays]

    def restore(self, fact_ids: Sequence[str], numbers: Sequence[bytes]) -> None:
        """Add or replace facts from what `stored` has returned for the same number of dimensions."""
        rows = self._facts.rows(fact_ids)
        for array, packed in zip(self._facts.arrays, numbers, strict=True):
            array[rows] = np.frombuffer(packed, array.dtype).reshape(len(rows), *array.shape[1:])

    def fits(self, vector: bytes) -> bool:
        """Whether a vector has the same number of dimensions."""
        return len(vector) == 4 * self.dimensions

    def remove(self, fact_id: str) -> None:
        """Remove a fact if it is there."""
        self._facts.remove(fact_id)

    def vectors(self, fact_ids: Iterable[str]) -> dict[str, bytes]:
        """Return the facts' vectors at length 1, nearly as they were added; missing facts are left out."""
        rows = {fact_id: row for fact_id in fact_ids if (row := self._facts.row(fact_id)) is not None}
        return {
            fact_id: vector.tobytes()
            for fact_id, vector in zip(rows, self._restored([*rows.values()]), strict=True)
        }

    def nearest(self, vectors: Sequence[bytes], most: int, least: float) -> list[list[Hit]]:
        """For each vector at most `most` facts with a similarity of at least `least`, best first, then by id."""
        if not self._facts or most < 1:
            return [[] for _ in vectors]
        return [self._nearest(vector, most, least) for vector in vectors]

    def _nearest(self, vector: bytes, most: int, least: float) -> list[Hit]:
        rows = self._likely(vector, max(POOL_TIMES * most, POOL_LEAST))
        found = self._restored(rows)
        lengths = np.linalg.norm(found, axis=1)
        scale = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
        return best(
            similarities([vector], found, scale), [self._facts.ids[row] for row in rows], most, least
        )[0]

    def _likely(self, vector: bytes, pool: int) -> list[int]:
        """Return the nearest rows of the first pass."""
        count, (coarse, _, steps) = len(self), self._facts.arrays
        if count <= pool:
            return list(range(count))
        asked, _, _ = self._shortened(np.frombuffer(vector, "<f4")[None])
        rough = (
            np.asarray(numkong.cdist(asked, coarse[:count], "dot", out_dtype="float32"))[0] * steps[:count]
        )
        return cast("list[int]", np.sort(np.argpartition(rough, count - pool)[count - pool :]).tolist())

    def _shortened(self, rows: Floats) -> tuple[NDArray[np.int8], Levels, Floats]:
        """Return rows as int8, the remainder of each number, and the value of one step of each row."""
        lengths = np.linalg.norm(rows, axis=1)
        steps, scaled = _steps(rows), rows.copy()
        scaled /= np.where(steps > 0, steps, 1)[:, None]
        coarse = np.rint(scaled)
        scaled -= coarse
        scaled += np.float32(0.5)
        scaled *= np.float32(self._most)
        levels = np.rint(scaled).astype(np.uint8)
        units = np.divide(steps, lengths, out=np.zeros_like(steps), where=lengths > 0)
        return coarse.astype(np.int8), self._packed(levels), units

    def _restored(self, rows: Sequence[int]) -> Floats:
        coarse, packed, steps = (array[rows] for array in self._facts.arrays)
        numbers = self._unpacked(packed).astype(np.float32)
        numbers /= np.float32(self._most)
        numbers -= np.float32(0.5)
        numbers += coarse
        numbers *= steps[:, None]
        return numbers

    def _packed(self, levels: Levels) -> Levels:
        """Pack several numbers into a byte: the first bits of all bytes are the first numbers, and so on."""
        packed = np.zeros((len(levels), self._facts.arrays[1].shape[1]), np.uint8)
        for number, shift in enumerate(self._shifts):
            part = levels[:, number * packed.shape[1] :][:, : packed.shape[1]]
            packed[:, : part.shape[1]] |= part << np.uint8(shift)
        return packed

    def _unpacked(self, packed: Levels) -> Levels:
        parts = [(packed >> np.uint8(shift)) & np.uint8(self._most + 1) for shift in self._shifts]
        return np.concatenate(parts, axis=1)[:, : self.dimensions]


def _steps(rows: Floats) -> Floats:
    """Return the value of one int8 step of each row."""
    return np.maximum(rows.max(axis=1), -rows.min(axis=1)) / np.float32(127)


Row = dict[str, Any]


class LoadedVectors(NamedTuple):
    """The vectors of a scope as of a revision."""

    matrix: QuickMatrix
    of_users: set[str]
    expires_at: dict[str, datetime]
    revision: int
    agent_id: str


class StoredVectors:
    """Reads the stored vectors of one model."""

    def __init__(self, database: AsyncDatabase[Row], names: Names, model: str) -> None:
        self._vectors = database.get_collection(
            names[ScopeVectors.COLLECTION], read_concern=ReadConcern("majority")
        )
        self._model = model

    async def of(self, marks: Mapping[str, Any]) -> LoadedVectors | None:
        """Return a scope's vectors if later changes can be applied to them; `marks`: its snapshot."""
        head = await self._vectors.find_one({"_id": marks["_id"]})
        if head is None or not is_usable(head, marks, self._model):
            return None
        room = max(head["facts"], marks.get("active_facts", 0))
        loaded = LoadedVectors(
            QuickMatrix(head["dimensions"], room), set(), {}, head["revision"], head["agent_id"]
        )
        read, found = 0, self._vectors.find_raw_batches(blocks_of(marks["_id"], head["made"]))
        async for batch in one_ahead(cast("AsyncIterable[bytes]", found)):
            read += await asyncio.to_thread(_take_in, loaded, batch)
        return loaded if read == head["blocks"] else None  # else they are being copied again


def is_usable(head: Row, marks: Mapping[str, Any], model: str | None) -> bool:
    """Return whether the later changes can be read from the facts."""
    same = (head.get("made") is not None, head.get("model"), head.get("encoding")) == (True, model, ENCODING)
    return same and marks.get("reset_revision", 0) <= head["revision"] <= marks["revision"]


def _take_in(loaded: LoadedVectors, batch: bytes) -> int:
    """Add blocks; return how many."""
    blocks = [*quickly_decoded(batch)]
    for block in blocks:
        loaded.matrix.restore(block["fact_ids"], block["numbers"])
        loaded.of_users.update(block["of_users"])
        times = (time.replace(tzinfo=UTC) for time in block["expires_at"])
        loaded.expires_at.update(zip(block["expiring"], times, strict=True))
    return len(blocks)


ROUND_SECONDS, PAUSE_SECONDS = 60.0, 30.0

"""Seconds between two rounds, and after a failed one."""

BLOCK_FACTS, BLOCK_BYTES = 4_096, 8_000_000

"""Most facts and bytes of a block; MongoDB's documents have at most 16 MB."""

READ_AT_ONCE = 1_000
"""Facts in a batch."""

CHANGED_SHARE = 0.1
"""Share of a scope's facts: when more have changed, its vectors are copied again."""


class CopyEnded(Exception):  # noqa: N818 - a direction: begin again
    """A fact was forgotten, or another process has begun, while vectors were copied."""


class VectorCopies:
    """Copies the vectors of one namespace into blocks, one scope after the other."""

    def __init__(self, database: AsyncDatabase[Row], names: Names, *, adapter: str = "plain") -> None:
        self._database, self._names, self._adapter = database, names, adapter
        self._facts = majority(database, names[Fact.COLLECTION])
        self._snapshots = majority(database, names[Snapshot.COLLECTION])
        self._vectors = majority(database, names[ScopeVectors.COLLECTION])
        self._transactions = Transactions(database.client)

    async def round(self) -> int:
        """Copy missing and outdated vectors, and delete unneeded blocks; return how many scopes were copied."""
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
    """The blocks of one scope that are being written; CopyEnded if they must not be any more."""

    def __init__(self, key: str, vectors: AsyncCollection[Row], transactions: Transactions) -> None:
        self.key, self._vectors, self._transactions = key, vectors, transactions
        self._name = uuid4().hex
        self._matrix: QuickMatrix | None = None
        self._added: dict[str, CachedFact] = {}
        self.blocks = self.facts = 0

    async def begin(self, agent_id: str) -> None:
        """Create the head document, which forgetting deletes or writes, and in which every block is counted."""
        begun: Row = {"agent_id": agent_id, "making": self._name, "written": 0}
        await self._vectors.update_one({"_id": self.key}, {"$set": begun}, upsert=True)

    async def add(self, facts: Sequence[CachedFact]) -> None:
        """Add facts with vectors; write a block once there are enough."""
        if not facts:
            return
        matrix = self._matrix = self._matrix or QuickMatrix(len(facts[0].vector) // 4)
        await asyncio.to_thread(matrix.put, {fact.fact_id: fact.vector for fact in facts})
        self._added |= {fact.fact_id: fact for fact in facts}
        if len(matrix) >= BLOCK_FACTS - READ_AT_ONCE or matrix.size > BLOCK_BYTES:
            await self._write(matrix)

    async def end(self, model: str, revision: int) -> None:
        """Make these blocks visible to searches, and delete earlier ones."""
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
