"""The writer's store on a real server: batches in, documents out."""

import asyncio
from collections.abc import Sequence
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.forgotten import Marks
from eden_memory.memory.memory_batch import AppliedScope, memory_batch
from eden_memory.memory.memory_store import MongoMemoryStore
from eden_memory.mongo.documents import document_of
from eden_memory.schemas.documents import Consolidated, Document, Fact, Reflection, Snapshot, StoredBlob
from eden_memory.stages.stage import Delivery
from tests.names import NAMES
from tests.unit.memory.memory_in_mind import rows_of

Database = AsyncDatabase[dict[str, Any]]
PREFIX = "memory_"
KINDS: tuple[type[Document], ...] = (Fact, Reflection, Consolidated, StoredBlob, Snapshot)


def store_of(database: Database) -> MongoMemoryStore:
    return MongoMemoryStore(database, NAMES)


async def apply(store: MongoMemoryStore, deliveries: Sequence[Delivery]) -> dict[str, AppliedScope]:
    """Apply a batch; what a scope raised is raised."""
    batch = memory_batch(deliveries, Marks())
    results = await store.apply(list(batch.scopes.values()))
    written: dict[str, AppliedScope] = {}
    for key, one in results.items():
        if isinstance(one, Exception):
            raise one
        written[key] = one
    return written


async def all_of(database: Database, kind: type[Document]) -> list[Document]:
    rows = await database[PREFIX + kind.COLLECTION].find().to_list()
    return [document_of(kind, row) for row in rows]


async def documents(database: Database) -> list[dict[str, Any]]:
    """All documents but for what tells how they came about."""
    found = await asyncio.gather(*(all_of(database, kind) for kind in KINDS))
    return rows_of(one for some in found for one in some)


async def snapshot(database: Database, key: str) -> Snapshot:
    row = await database[PREFIX + Snapshot.COLLECTION].find_one({"_id": key})
    assert row is not None
    return document_of(Snapshot, row)


async def fact_rows(database: Database) -> dict[str, dict[str, Any]]:
    return {row["_id"]: row for row in await database["memory_facts"].find().to_list()}
