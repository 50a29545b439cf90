"""One kept scope: what is compared beside the event loop is not written to, whoever has left meanwhile."""

import asyncio
import threading
from datetime import UTC, datetime

import numpy as np
import pytest

from eden_memory.search import cached_scope
from eden_memory.search.cached_scope import CachedScope
from eden_memory.search.fact_candidates import NOW
from eden_memory.search.quick_matrix import QuickMatrix
from eden_memory.search.search_documents import CachedFact, cached_document

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
