"""Changes to a scope that is searched: from the commit until the fact is found, and what a search takes then."""

import asyncio
import time
from typing import Any, NamedTuple

import numpy as np
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.domain.facts.fact_hash import fact_hash
from eden_memory.domain.forgetting.forgotten import Marks
from eden_memory.domain.projection.memory_batch import memory_batch
from eden_memory.domain.search.candidates import NOW as WHEN_NOW
from eden_memory.domain.stage import Delivery
from eden_memory.mongo.memory.memory_store import MongoMemoryStore
from eden_memory.mongo.search.plain_lists import PlainFactLists
from schemas.envelope import Envelope
from schemas.events import FactChanged
from schemas.provenance import Embedding
from schemas.scopes import Scope
from tests.bench.search_facts import MODEL, NOW
from tests.names import NAMES

SECONDS = 10.0


class Change(NamedTuple):
    """One new fact, written by the writer's store."""

    findable_ms: float
    """From the acknowledged commit until a search finds it by meaning and by words."""
    search_ms: float
    """Of the first search that began after the change was told of."""


async def changes(
    database: AsyncDatabase[dict[str, Any]], lists: PlainFactLists, scope: Scope, dimensions: int, count: int
) -> list[Change]:
    """So many, one after the other."""
    writer = MongoMemoryStore(database, NAMES)
    return [await _one(writer, lists, scope, dimensions, number) for number in range(count)]


async def _one(
    writer: MongoMemoryStore, lists: PlainFactLists, scope: Scope, dimensions: int, number: int
) -> Change:
    vector = np.random.default_rng(number).standard_normal(dimensions).astype("<f4")
    event = _event(scope, number, (vector / np.linalg.norm(vector)).astype("<f4").tobytes())
    result = await writer.apply(list(memory_batch([_delivery(event)], Marks()).scopes.values()))
    for one in result.values():
        if isinstance(one, Exception):
            raise one
    committed = time.perf_counter()
    while True:
        start = time.perf_counter()
        found = await _found(lists, scope, event)
        end = time.perf_counter()
        if found:
            return Change((end - committed) * 1e3, (end - start) * 1e3)
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
        valid_from=NOW,
    )


def _delivery(event: FactChanged) -> Delivery:
    envelope = Envelope(
        id=f"{event.key()}-{event.outcome}",
        name=event.NAME,
        version=1,
        source="fact-dedup",
        time=event.valid_from,
        subject=event.subject(),
        ordering_key=event.ordering_key(),
    )
    return Delivery(envelope, event, "memory.facts", event.key())
