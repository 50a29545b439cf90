"""One cached scope: what a thread compares is not written to meanwhile, and what it takes in memory is counted."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, cast

import numpy as np
import pytest

from eden_memory.search import cached_scope
from eden_memory.search.cached_scope import CachedScope
from eden_memory.search.cached_scope_store import CachedScopes
from eden_memory.search.fact_candidates import NOW, CachedFact, cached_document
from eden_memory.search.stored_vector_store import QuickMatrix
from tests.names import NAMES

AT = datetime(2026, 1, 1, tzinfo=UTC)
VECTOR = np.array([1, 0], np.float32).tobytes()


async def test_a_search_that_is_cancelled_keeps_writers_away_until_its_thread_has_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, may_end = threading.Event(), threading.Event()
    nearest = QuickMatrix.nearest

    def slow(self: QuickMatrix, *given: object) -> object:
        begun.set()
        assert may_end.wait(20)
        return nearest(self, *given)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(QuickMatrix, "nearest", slow)
    monkeypatch.setattr(cached_scope, "THREAD_PRODUCTS", 0)
    scope = CachedScope("user:s.a:s.ada")
    document = {"content": "text", "formed_at": AT, "valid_from": AT, "version": 1}
    scope.put([CachedFact("f", "text", False, None, cached_document(document), VECTOR)])
    search = asyncio.create_task(scope.nearest([VECTOR], 1, 0.0, NOW))
    await asyncio.to_thread(begun.wait, 20)
    for _ in range(2):
        search.cancel()
        await asyncio.sleep(0)
    assert scope.lock.locked()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await search
    assert not scope.lock.locked()
    (found,) = await scope.nearest([VECTOR], 1, 0.0, NOW)
    assert [one.fact_id for one in found] == ["f"]


class EmptyDatabase:
    """A database, and each of its collections, without documents."""

    def get_collection(self, *_: object, **__: object) -> "EmptyDatabase":
        return self

    async def find(self, *_: object, **__: object) -> AsyncIterator[dict[str, Any]]:
        for row in list[dict[str, Any]]():
            yield row


async def test_of_thousands_of_scopes_those_used_last_stay_below_the_limit() -> None:
    sizes, dice, room = list[int](), Random(7), 60
    limit = room * CachedScope("user:s.a:s.u0").size

    def used(size: int, _scopes: int, _evicted: int) -> None:
        sizes.append(size)

    scopes = CachedScopes(cast("Any", EmptyDatabase()), NAMES, "test", limit, used)
    scopes.live(True)
    order = dict[str, None]()
    for number in range(3_000):
        key = f"user:s.a:s.u{dice.choice((number, number - number % 50))}"
        async with scopes.current([key]):
            order.pop(key, None)
            order[key] = None
    assert len(order) > 1_000
    assert max(sizes) == limit
    assert len(scopes) == room
    asked = scopes.queries
    async with scopes.current([*order][-room:]):
        assert scopes.queries == asked


MANY_SMALL_SCOPES = """
import asyncio, ctypes
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, cast
from eden_memory.search.cached_scope import CachedScope
from eden_memory.search.cached_scope_store import CachedScopes
from eden_memory.search.fact_candidates import CachedFact, cached_document

def resident():
    ctypes.CDLL(None).malloc_trim(0)  # what a write of the index frees
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

async def scopes(count):
    made = [CachedScope(f"user:s.a:s.u{number}") for number in range(count)]
    for scope in made:
        at = datetime(2026, 1, 1, tzinfo=UTC)
        row = {"content": "Ana plays the violin", "formed_at": at, "valid_from": at, "version": 1}
        for number in range(2):
            fact = CachedFact(f"f{number}", row["content"], False, None, cached_document(row), bytes(4 * 384))
            scope.put([fact])
            await scope.words_ready()
    return made

async def main():
    first = await scopes(30)
    before = resident()
    more = await scopes(170)
    print(resident() - before, sum(scope.size for scope in more))

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks Linux how large the process is")
def test_small_scopes_take_no_more_memory_than_is_counted() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", MANY_SMALL_SCOPES],
        env={**os.environ, "MALLOC_ARENA_MAX": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    grown, counted = map(int, ended.stdout.split())
    assert 0 < grown <= counted
