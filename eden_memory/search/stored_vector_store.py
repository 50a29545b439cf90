"""Vectors of large scopes as blocks in MongoDB: a first search reads some tens of documents, not every fact.

Blocks are copies of what facts hold, without texts, as of a revision; later changes are read from the facts
(eden_memory.search.vector_copy_store makes them).
"""

import asyncio
from collections.abc import AsyncIterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.memory.vector_block_store import blocks_of
from eden_memory.mongo.documents import quickly_decoded
from eden_memory.names import Names
from eden_memory.schemas.documents import ScopeVectors
from eden_memory.search.quick_matrix import ENCODING, QuickMatrix
from eden_memory.task_ending import one_ahead

Row = dict[str, Any]


class LoadedVectors(NamedTuple):
    """The vectors of a scope as of a revision."""

    matrix: QuickMatrix
    of_users: set[str]
    expires_at: dict[str, datetime]
    revision: int
    agent_id: str


class StoredVectors:
    """Reads the vectors of a model."""

    def __init__(self, database: AsyncDatabase[Row], names: Names, model: str) -> None:
        self._vectors = database.get_collection(
            names[ScopeVectors.COLLECTION], read_concern=ReadConcern("majority")
        )
        self._model = model

    async def of(self, marks: Mapping[str, Any]) -> LoadedVectors | None:
        """Return a scope's vectors, if there are any that later changes can be added to; `marks`: its snapshot."""
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
        return loaded if read == head["blocks"] else None  # else they are made anew at this moment


def is_usable(head: Row, marks: Mapping[str, Any], model: str | None) -> bool:
    """Return whether what changed since can be read from the facts."""
    same = (head.get("made") is not None, head.get("model"), head.get("encoding")) == (True, model, ENCODING)
    return same and marks.get("reset_revision", 0) <= head["revision"] <= marks["revision"]


def _take_in(loaded: LoadedVectors, batch: bytes) -> int:
    """Add blocks, and return how many."""
    blocks = [*quickly_decoded(batch)]
    for block in blocks:
        loaded.matrix.restore(block["fact_ids"], block["numbers"])
        loaded.of_users.update(block["of_users"])
        times = (time.replace(tzinfo=UTC) for time in block["expires_at"])
        loaded.expires_at.update(zip(block["expiring"], times, strict=True))
    return len(blocks)
