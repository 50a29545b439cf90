"""Changes to a scope that is searched: from the commit until the fact is found, and what a search takes then."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import numpy as np
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.forgotten import Marks
from eden_memory.memory.memory_batch import fact_hash, memory_batch
from eden_memory.memory.memory_store import MongoMemoryStore
from eden_memory.schemas.events import FactChanged
from eden_memory.schemas.provenance import Embedding
from eden_memory.schemas.scopes import Scope
from eden_memory.search.fact_candidates import NOW as WHEN_NOW
from eden_memory.search.plain_list_store import PlainFactLists
from eden_memory.tasks import end
from tests.bench.search_facts import MODEL, NOW
from tests.names import NAMES
from tests.unit.memory.memory_histories import delivered

SECONDS = 10.0


class Change(NamedTuple):
    """One new fact, written by the writer's store."""

    findable_ms: float
    """From the acknowledged commit until a search finds it by meaning and by words."""
    search_ms: float
    """Of the first search that began after the change was told of."""
    written_ms: float
    """From the write's beginning until a search finds it."""
    event_ms: float
    """From the write's beginning until a bare change stream tells of it."""


async def changes(
    database: AsyncDatabase[dict[str, Any]], lists: PlainFactLists, scope: Scope, dimensions: int, count: int
) -> list[Change]:
    """So many, one after the other."""
    writer = MongoMemoryStore(database, NAMES)
    async with bare_stream(database) as told:
        return [await _one(writer, lists, told, scope, dimensions, number) for number in range(count)]


@asynccontextmanager
async def bare_stream(database: AsyncDatabase[dict[str, Any]]) -> AsyncGenerator["asyncio.Queue[float]"]:
    """When a stream told of a scope's document, the moment after the moment: no search can know it sooner."""
    moments: asyncio.Queue[float] = asyncio.Queue()
    async with await database["memory_snapshots"].watch() as stream:

        async def read() -> None:
            async for _ in stream:
                moments.put_nowait(time.perf_counter())

        reading = asyncio.create_task(read())
        try:
            yield moments
        finally:
            await end([reading])


async def _one(
    writer: MongoMemoryStore,
    lists: PlainFactLists,
    told: "asyncio.Queue[float]",
    scope: Scope,
    dimensions: int,
    number: int,
) -> Change:
    vector = np.random.default_rng(number).standard_normal(dimensions).astype("<f4")
    event = _event(scope, number, (vector / np.linalg.norm(vector)).astype("<f4").tobytes())
    begun = time.perf_counter()
    result = await writer.apply(list(memory_batch([delivered(event)], Marks()).scopes.values()))
    for one in result.values():
        if isinstance(one, Exception):
            raise one
    committed = time.perf_counter()
    while True:
        start = time.perf_counter()
        found = await _found(lists, scope, event)
        end = time.perf_counter()
        if found:
            bare = await asyncio.wait_for(told.get(), SECONDS)
            taken = (end - committed, end - start, end - begun, bare - begun)
            return Change(*(one * 1e3 for one in taken))
        assert end - committed < SECONDS, "a new fact is not found"
        await asyncio.sleep(0.001)


async def _found(lists: PlainFactLists, scope: Scope, event: FactChanged) -> bool:
    assert event.embedding is not None
    (near,), (said,) = await asyncio.gather(
        lists.semantic([scope.key], [event.embedding.vector], 20, 0.9, WHEN_NOW),
        lists.textual([scope.key], [event.text], 20, 0.0, WHEN_NOW),
    )
    return all(any(one.fact.fact_id == event.fact_id for one in found) for found in (near, said))


def _event(scope: Scope, number: int, vector: bytes) -> FactChanged:
    text = f"Zora keeps a unicorn{number} in a castle"
    return FactChanged(
        cause="c",
        fact_id=f"new{number}",
        version=1,
        outcome=number + 1,
        scope=scope,
        text=text,
        hash=fact_hash(text),
        embedding=Embedding(model=MODEL, vector=vector),
        decision="ADD",
        formed_at=NOW,
        said_at=NOW,
        valid_from=NOW,
    )
